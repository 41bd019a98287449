//! Upgrades: another program takes over the listening sockets, in the same process.

use std::{
    ffi::OsString,
    io,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use minos_net::{keep_listeners, replace_process, unused_sockets};

use super::ServeOptions;

/// The program that takes over if SIGUSR2 asks for it.
pub(super) struct Upgrade {
    /// Its path, of which the file may be another one by then. Unknown where /proc is not mounted.
    program: io::Result<PathBuf>,
    arguments: Vec<OsString>,
    keeps_items: bool,
    /// The process has given up rights that it had at its start.
    is_confined: bool,
    is_asked: AtomicBool,
}

impl Upgrade {
    /// The same program with the same arguments.
    pub(super) fn new(options: &ServeOptions) -> Self {
        Self {
            program: std::env::current_exe(),
            arguments: std::env::args_os().skip(1).collect(),
            keeps_items: options.region.is_some() || options.flash.flash.is_some(),
            is_confined: options.security.is_confined(),
            is_asked: AtomicBool::new(false),
        }
    }

    /// Prepares the upgrade; true if the server is to stop for it.
    pub(super) fn ask(&self) -> bool {
        if !self.keeps_items {
            tracing::error!("SIGUSR2: an upgrade would lose all items: it needs --region or --flash");
            return false;
        }
        if self.is_confined {
            tracing::error!("SIGUSR2: after --user or --sandbox no other program can be started");
            return false;
        }
        if let Err(error) = &self.program {
            tracing::error!(%error, "SIGUSR2: the path of the program is not known");
            return false;
        }
        match keep_listeners() {
            Ok(()) => self.is_asked.store(true, Relaxed),
            Err(error) => tracing::error!(%error, "SIGUSR2: cannot keep the listening sockets"),
        }
        self.is_asked.load(Relaxed)
    }

    /// Runs the program if it was asked for. To be called when everything is closed.
    pub(super) fn run_if_asked(&self) {
        if let (true, Ok(program)) = (self.is_asked.load(Relaxed), &self.program) {
            tracing::info!(program = %program.display(), "starting the new program");
            replace_process(program, &self.arguments);
        }
    }
}

/// Warns of sockets that were passed to this program and that no option names.
pub(super) fn tell_unused() {
    for address in unused_sockets() {
        tracing::warn!(%address, "a socket was passed on that no option names: nobody accepts its connections");
    }
}
