//! The options of the native datagram protocol.

use std::{path::PathBuf, time::Duration};

use anyhow::bail;
use clap::Args;
use minos_base::SizeText;
use minos_net::{Address, MemifOptions, Side, Source};
use minos_node::{config::NativeConfig, settings::parse_time};

use super::{
    dpdk::{DpdkArgs, Transports},
    values::{NativePort, Switch, name_of},
};
use crate::secret::read_all;

/// The options of `minos serve` for the native datagram protocol.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Native protocol")]
pub(crate) struct NativeOptions {
    /// Where native datagram clients connect: IP:PORT, or 127.0.0.1:11311 without a value. Queue i of n
    /// workers is at PORT+i, its large transfers at PORT+n+i; with port 0, at the first free range
    #[arg(long, value_name = "ADDR", num_args = 0..=1, default_missing_value = "127.0.0.1:11311")]
    pub(crate) native: Option<Address>,
    /// How native datagrams come: through UDP sockets, or straight from the queues of the card that has the address
    /// (AF_XDP). That needs privileges and a driver; without them the server says why and uses sockets. Or by memory that a
    /// process beside this one shares (memif). Or through DPDK, from a device that the server has for itself
    #[arg(long, value_enum, default_value_t = NativePort::Udp)]
    port: NativePort,
    /// With --port memif: the socket where one process connects, which is made there for this user alone
    #[arg(long, value_name = "PATH")]
    memif: Option<PathBuf>,
    /// With --port memif: queues of their own for large replies [default: off]
    #[arg(long, value_enum, num_args = 0..=1, default_missing_value = "on", value_name = "on|off")]
    memif_large_queues: Option<Switch>,
    #[command(flatten)]
    dpdk: DpdkArgs,
    /// One port for all queues: the kernel picks the socket by the queue that a datagram names
    #[arg(long, value_enum, default_value_t = Switch::Off, num_args = 0..=1, default_missing_value = "on", value_name = "on|off")]
    native_single_port: Switch,
    /// Largest datagram, in bytes of UDP payload; clients bound it by the MTU of their path
    #[arg(long, value_name = "BYTES", default_value_t = 8192)]
    native_datagram: usize,
    /// Window of a large value: fragments in flight at once
    #[arg(long, value_name = "FRAGMENTS", default_value_t = 32)]
    native_window: u16,
    /// Large stores of one source address that may be in progress at a time
    #[arg(long, value_name = "N", default_value_t = 8)]
    native_transfers: usize,
    /// Memory for values that are still arriving [default: a sixteenth of --memory]
    #[arg(long, value_name = "SIZE")]
    native_transfer_memory: Option<SizeText>,
    /// Part of that memory for one source address; one value always fits [default: a quarter]
    #[arg(long, value_name = "SIZE")]
    native_source_memory: Option<SizeText>,
    /// Memory for operations that wait for flash, half of it for one source address [default: a sixteenth of
    /// --memory]
    #[arg(long, value_name = "SIZE")]
    native_waiting_memory: Option<SizeText>,
    /// Bytes of large values that a worker sends in one burst, before it serves other requests
    #[arg(long, value_name = "SIZE", default_value = "4m")]
    native_send_burst: SizeText,
    /// Part of such a burst for one client
    #[arg(long, value_name = "SIZE", default_value = "1m")]
    native_send_client: SizeText,
    /// Time for a window of a large store, after which the store is aborted
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_time)]
    native_transfer_timeout: Duration,
    /// Sessions at a time: clients that use exactly-once operations, or a secret
    #[arg(long, value_name = "N", default_value_t = 4096)]
    native_sessions: usize,
    /// Sessions of clients at one address
    #[arg(long, value_name = "N", default_value_t = 256)]
    native_sessions_per_address: usize,
    /// File with secrets as `minos secret` prints them, one a line: clients must know one of them, and
    /// datagrams are sealed with it
    #[arg(long, value_name = "PATH")]
    native_secret_file: Option<PathBuf>,
    /// Receive buffer of each socket in the kernel
    #[arg(long, value_name = "SIZE", default_value = "4m")]
    native_receive_buffer: SizeText,
}

impl NativeOptions {
    /// The server's configuration; `None` if the protocol is off.
    ///
    /// # Errors
    /// Names the option whose value is invalid.
    pub(super) fn config(&self) -> anyhow::Result<Option<NativeConfig>> {
        let Some(listen) = &self.native else { return self.refuse_without_address() };
        let address = match listen {
            Address::Tcp(address) => *address,
            Address::Unix(_) => {
                bail!("--native {listen}: expected IP:PORT; datagrams do not go to unix: paths")
            }
        };
        let file = self.native_secret_file.as_deref();
        let secrets =
            file.map(|path| read_all("--native-secret-file", path)).transpose()?.unwrap_or_default();
        Ok(Some(NativeConfig {
            single_port: self.native_single_port == Switch::On,
            source: self.source()?,
            datagram_bytes: self.native_datagram,
            window: self.native_window,
            transfers_per_source: self.native_transfers,
            transfer_memory_bytes: self.native_transfer_memory.map(|size| size.0),
            source_memory_bytes: self.native_source_memory.map(|size| size.0),
            waiting_memory_bytes: self.native_waiting_memory.map(|size| size.0),
            send_burst_bytes: self.native_send_burst.0,
            send_client_bytes: self.native_send_client.0,
            transfer_timeout: self.native_transfer_timeout,
            sessions: self.native_sessions,
            sessions_per_source: self.native_sessions_per_address,
            secrets,
            receive_buffer_bytes: self.native_receive_buffer.0 as usize,
            ..NativeConfig::new(address)
        }))
    }

    /// Where datagrams come from, but for `--port dpdk`.
    fn source(&self) -> anyhow::Result<Source> {
        let separates_large = self.memif_large_queues == Some(Switch::On);
        match (self.port, &self.memif) {
            (NativePort::Memif, Some(path)) => {
                Ok(Source::Memif(MemifOptions { path: path.clone(), side: Side::Server { separates_large } }))
            }
            (NativePort::Memif, None) => bail!("--port memif: where do processes connect? See --memif"),
            _ if self.memif.is_some() || self.memif_large_queues.is_some() => {
                bail!("--memif and --memif-large-queues go with --port memif only")
            }
            (NativePort::Xdp, None) => Ok(Source::Card),
            _ => Ok(Source::Sockets),
        }
    }

    /// True if nothing wakes a worker whose datagrams come so.
    pub(super) fn wakes_nobody(&self) -> bool {
        matches!(self.port, NativePort::Memif | NativePort::Dpdk)
    }

    /// True for `--port memif`.
    pub(super) fn is_memif(&self) -> bool {
        self.port == NativePort::Memif
    }

    /// True for `--port dpdk`.
    pub(super) fn is_dpdk(&self) -> bool {
        self.port == NativePort::Dpdk
    }

    /// The transports of the server.
    ///
    /// # Errors
    /// Names the option that cannot be met.
    pub(super) fn transports(&self) -> anyhow::Result<Transports> {
        match self.port {
            NativePort::Dpdk => self.dpdk.transports(),
            NativePort::Udp | NativePort::Xdp | NativePort::Memif => {
                self.dpdk.refuse().map(|()| Transports::Kernel)
            }
        }
    }

    /// Rejects a secret without an address: it would protect nothing.
    fn refuse_without_address(&self) -> anyhow::Result<Option<NativeConfig>> {
        if self.native_secret_file.is_some() {
            bail!(
                "--native-secret-file: there is no --native to go with it; TCP clients are not asked for it"
            );
        }
        if self.port != NativePort::Udp {
            let port = name_of(self.port);
            bail!("--port {port}: there is no --native to go with it; TCP clients come through the kernel");
        }
        self.source()?;
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use minos_client::Secret;

    use super::*;

    #[derive(Parser)]
    struct Reader {
        #[command(flatten)]
        options: NativeOptions,
    }

    fn config(arguments: &[&str]) -> anyhow::Result<Option<NativeConfig>> {
        let all = std::iter::once(&"serve").chain(arguments);
        Reader::try_parse_from(all)?.options.config()
    }

    #[test]
    fn options_become_a_config() {
        let arguments =
            ["--native", "127.0.0.1:0", "--native-single-port", "--native-transfer-memory=1m", "--port=xdp"];
        let config = config(&arguments).unwrap().unwrap();
        assert!(config.single_port && config.source == Source::Card);
        assert_eq!(config.transfer_memory_bytes, Some(1 << 20));
        assert_eq!((config.datagram_bytes, config.window), (8192, 32));
    }

    #[test]
    fn the_address_is_loopback_unless_told_otherwise() {
        let config = config(&["--native", "--native-window=8"]).unwrap().unwrap();
        assert_eq!(config.address, ([127, 0, 0, 1], 11311).into());
    }

    #[test]
    fn nothing_is_served_unless_asked() {
        assert!(config(&[]).unwrap().is_none());
        for port in ["xdp", "memif", "dpdk"] {
            let error = config(&[&format!("--port={port}")]).unwrap_err().to_string();
            assert!(error.contains("--native") && error.contains(port), "{error}");
        }
        assert!(config(&["--native-secret-file", "/x"]).unwrap_err().to_string().contains("--native"));
        assert!(config(&["--native", "unix:/x"]).unwrap_err().to_string().contains("IP:PORT"));
    }

    #[test]
    fn options_of_dpdk_go_with_its_port_only() {
        let transports = |arguments: &[&str]| {
            let all = ["serve", "--native"].iter().chain(arguments);
            Reader::try_parse_from(all).unwrap().options.transports()
        };
        assert!(matches!(transports(&["--port=xdp"]), Ok(Transports::Kernel)));
        for option in ["--dpdk-device=memif:/run/memif", "--dpdk-args=-m64", "--dpdk-large-queues"] {
            assert!(transports(&[option]).unwrap_err().to_string().contains("--port dpdk"));
        }
        let without_device = transports(&["--port=dpdk"]).unwrap_err().to_string();
        let asked = if cfg!(feature = "dpdk") { "--dpdk-device" } else { "feature dpdk" };
        assert!(without_device.contains(asked), "{without_device}");
    }

    #[test]
    fn a_memif_has_a_path_and_nothing_else_does() {
        let with = |arguments: &[&str]| config(&[&["--native=10.0.0.1:11311"], arguments].concat());
        let whole = with(&["--port=memif", "--memif=/run/memif", "--memif-large-queues"]).unwrap().unwrap();
        let side = Side::Server { separates_large: true };
        assert_eq!(whole.source, Source::Memif(MemifOptions { path: "/run/memif".into(), side }));
        assert!(with(&["--port=memif"]).unwrap_err().to_string().contains("--memif"));
        for option in ["--memif=/run/memif", "--memif-large-queues"] {
            assert!(with(&[option]).unwrap_err().to_string().contains("--port memif"));
            assert!(config(&[option]).unwrap_err().to_string().contains("--port memif"));
        }
    }

    #[test]
    fn secrets_are_read_and_what_can_be_guessed_is_refused() {
        const SECRET: &str = "7:00112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210";
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let with_secrets =
            || config(&["--native=127.0.0.1:0", "--native-secret-file", path.to_str().unwrap()]);
        let other = SECRET.replace("7:", "8:");
        std::fs::write(&path, format!("{SECRET}\n{other}\n")).unwrap();
        let secrets = with_secrets().unwrap().unwrap().secrets;
        assert_eq!(secrets.iter().map(Secret::id).collect::<Vec<_>>(), [7, 8]);
        for wrong in ["", "0123456789abcdef\n", "a passphrase of thirty-two bytes"] {
            std::fs::write(&path, wrong).unwrap();
            let error = format!("{:#}", with_secrets().unwrap_err());
            assert!(error.contains("--native-secret-file") && error.contains("minos secret"), "{error}");
        }
    }
}
