//! The network interface that has an address.

use std::{
    ffi::CStr,
    fs, io,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4, SocketAddrV6},
    path::Path,
};

use super::Refusal;
use crate::frame::Mac;

/// `ARPHRD_ETHER`: the interface has Ethernet's headers.
const ETHERNET: &str = "1";

/// An Ethernet interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) name: String,
    pub(super) index: u32,
    pub(super) mac: Mac,
    /// Largest IP packet, in bytes.
    pub(super) mtu_bytes: usize,
    pub(super) receive_queues: usize,
    pub(super) send_queues: usize,
}

impl Interface {
    /// The interface that has this address.
    pub(super) fn with(address: SocketAddr) -> Result<Self, Refusal> {
        let ip = address.ip();
        if ip.is_unspecified() {
            return Err(Refusal::new("the address must be that of one interface, not all addresses"));
        }
        let name = name_with(address).map_err(|error| Refusal::of("cannot list addresses", error))?;
        let name = name.ok_or_else(|| Refusal::new(format!("no interface has the address {ip}")))?;
        Self::named(&name).map_err(|error| Refusal::of(&format!("cannot read about {name}"), error))?
    }

    fn named(name: &str) -> io::Result<Result<Self, Refusal>> {
        let folder = Path::new("/sys/class/net").join(name);
        let text = |file: &str| fs::read_to_string(folder.join(file)).map(|text| text.trim().to_owned());
        if text("type")? != ETHERNET {
            return Ok(Err(Refusal::new(format!("{name} is not an Ethernet interface"))));
        }
        let number = |file: &str| text(file)?.parse::<u32>().map_err(|_| unreadable(file));
        Ok(Ok(Self {
            index: number("ifindex")?,
            mac: mac(&text("address")?).ok_or_else(|| unreadable("address"))?,
            mtu_bytes: number("mtu")? as usize,
            receive_queues: queues(&folder, "rx-")?,
            send_queues: queues(&folder, "tx-")?,
            name: name.to_owned(),
        }))
    }
}

fn unreadable(file: &str) -> io::Error {
    io::Error::other(format!("the file {file} is not as expected"))
}

/// Reads the form `02:00:00:00:00:01`.
fn mac(text: &str) -> Option<Mac> {
    let mut bytes = text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok());
    let mut mac = Mac::default();
    for byte in &mut mac {
        *byte = bytes.next()??;
    }
    bytes.next().is_none().then_some(mac)
}

fn queues(folder: &Path, prefix: &str) -> io::Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(folder.join("queues"))? {
        count += usize::from(entry?.file_name().to_string_lossy().starts_with(prefix));
    }
    Ok(count)
}

/// The name of the interface with this address. Its port does not matter.
fn name_with(wanted: SocketAddr) -> io::Result<Option<String>> {
    let scope = |v6: SocketAddrV6| Some(v6.scope_id()).filter(|&scope| scope != 0);
    let is_wanted = |found: SocketAddr| match (wanted, found) {
        (SocketAddr::V6(wanted), SocketAddr::V6(found)) => {
            // Links have the same addresses.
            wanted.ip() == found.ip() && scope(wanted).is_none_or(|scope| scope == found.scope_id())
        }
        _ => wanted.ip() == found.ip(),
    };
    let mut first = std::ptr::null_mut();
    // SAFETY: the call writes a list to `first` or fails.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let (mut next, mut name) = (first, None);
    while !next.is_null() && name.is_none() {
        // SAFETY: the list lives until it is freed below; its entries are whole.
        let entry = unsafe { &*next };
        // SAFETY: an entry's address is null or a whole one of its family.
        if unsafe { address(entry.ifa_addr) }.is_some_and(is_wanted) {
            // SAFETY: an entry's name is a text that ends with a zero.
            let text = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy();
            // An address may have a label: the name, a colon, and more.
            name = text.split(':').next().map(str::to_owned);
        }
        next = entry.ifa_next;
    }
    // SAFETY: the list came from `getifaddrs`, and nothing refers to it any more.
    unsafe { libc::freeifaddrs(first) };
    Ok(name)
}

/// The IP address in the kernel's form; `None` for other families.
///
/// # Safety
/// `name` is null, or points to an address that is as long as its family's.
unsafe fn address(name: *const libc::sockaddr) -> Option<SocketAddr> {
    // SAFETY: the caller vouches for it.
    let family = unsafe { name.as_ref() }?.sa_family;
    match libc::c_int::from(family) {
        libc::AF_INET => {
            // SAFETY: of this family; the list's entries may be aligned for less.
            let v4 = unsafe { name.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(SocketAddrV4::new(Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes()), 0).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { name.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(SocketAddrV6::new(v6.sin6_addr.s6_addr.into(), 0, 0, v6.sin6_scope_id).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_addresses_are_read() {
        assert_eq!(mac("02:00:00:00:00:fe"), Some([2, 0, 0, 0, 0, 0xfe]));
        for wrong in ["", "02:00:00:00:00", "02:00:00:00:00:00:00", "02:00:00:00:00:xx"] {
            assert_eq!(mac(wrong), None);
        }
    }

    #[test]
    fn addresses_without_a_card_are_refused_with_a_reason() {
        let reason = |ip: &str| {
            Interface::with((ip.parse::<std::net::IpAddr>().unwrap(), 0).into()).unwrap_err().to_string()
        };
        assert!(reason("0.0.0.0").contains("not all addresses"));
        assert!(reason("127.0.0.1").contains("lo is not an Ethernet interface"));
        assert!(reason("192.0.2.77").contains("no interface has the address 192.0.2.77"));
    }
}
