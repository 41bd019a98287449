//! Signals: SIGTERM and SIGINT stop the server, SIGUSR2 lets another program take over, SIGHUP reads files again.

use std::{
    io,
    sync::{Arc, atomic::AtomicBool},
    thread::{self, JoinHandle},
};

use anyhow::ensure;
use minos_node::{Operator, Server, Stop};
use rustix::process::Signal;
use signal_hook::{
    consts::{SIGHUP, SIGUSR1, SIGUSR2, TERM_SIGNALS},
    flag,
    iterator::{Handle, Signals},
};

use super::{security::Reload, upgrade::Upgrade};

/// The signal of a parent's end. One comes for each of its threads, so that none may be taken for haste.
pub(super) const ORPHANED: Signal = Signal::USR1;

/// Ignores, until [`Heeding::begin`], the signals whose default is to end the process and that are not meant to.
pub(super) fn ignore_early() -> io::Result<()> {
    for signal in [SIGHUP, SIGUSR2] {
        flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    Ok(())
}

/// The signals that a server heeds.
pub(super) fn heeded() -> io::Result<Signals> {
    Signals::new(TERM_SIGNALS.iter().chain(&[SIGUSR1, SIGUSR2, SIGHUP]))
}

/// The thread that heeds them.
pub(super) struct Heeding {
    signals: Handle,
    thread: JoinHandle<()>,
    upgrade: Arc<Upgrade>,
    stop: Arc<Stop>,
}

impl Heeding {
    pub(super) fn begin(
        mut signals: Signals,
        server: &Server,
        (reload, upgrade): (Option<Reload>, Upgrade),
    ) -> io::Result<Self> {
        let (stop, operator, upgrade) = (Arc::clone(server.stop()), server.operator(), Arc::new(upgrade));
        let (handle, asked, stopped) = (signals.handle(), Arc::clone(&upgrade), Arc::clone(&stop));
        let heed = move || {
            for signal in signals.forever() {
                heed(signal, (&stopped, &operator), reload.as_ref(), &asked);
            }
        };
        let thread = thread::Builder::new().name("minos-signals".to_owned()).spawn(heed)?;
        Ok(Self { signals: handle, thread, upgrade, stop })
    }

    /// Runs another program if it was asked for. To be called when everything is closed.
    ///
    /// # Errors
    /// Items were lost with the stop.
    pub(super) fn end(self) -> anyhow::Result<()> {
        self.signals.close();
        // It has told of its panic.
        let _ = self.thread.join();
        self.upgrade.run_if_asked();
        ensure!(!self.stop.has_lost(), "flash did not take everything in memory: items are lost");
        Ok(())
    }
}

fn heed(signal: i32, (stop, operator): (&Stop, &Operator), reload: Option<&Reload>, upgrade: &Upgrade) {
    match (signal, reload) {
        (SIGHUP, Some(reload)) => {
            reload.run();
            // A server that stops ends all connections, and nobody may hold its table then.
            if !stop.is_requested() {
                operator.kill_deleted();
            }
        }
        // It ends neither memcached nor Redis.
        (SIGHUP, None) => tracing::info!("SIGHUP: there is no file to read again"),
        (SIGUSR1, _) if stop.is_requested() => _ = upgrade.cancel(),
        (SIGUSR2, _) if stop.is_requested() => tracing::info!("SIGUSR2: the server is stopping already"),
        (SIGUSR2, _) if !upgrade.ask() => {}
        (_, _) if !stop.is_requested() => {
            tracing::info!(signal, "stopping");
            stop.request();
        }
        (_, _) if upgrade.cancel() => tracing::info!(signal, "no new program will be started"),
        (_, _) => {
            tracing::warn!(signal, "a second signal: ending at once");
            std::process::exit(1);
        }
    }
}
