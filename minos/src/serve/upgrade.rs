//! Upgrades: another program takes over the listening sockets, in the same process.

use std::{
    ffi::OsString,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use anyhow::{Context as _, bail, ensure};
use minos_engine::StoreConfig;
use minos_net::{close_unused_sockets, keep_listeners, release_listeners, replace_process};
use rustix::fs::{Access, access};

use super::{ServeOptions, config_file, region::RegionPlace, values::EngineKind};
use crate::{admin::keys, keeper::check_keeper};

/// The program that takes over if SIGUSR2 asks for it.
pub(super) struct Upgrade {
    /// Its path, of which the file may be another one by then. Unknown where /proc is not mounted.
    program: std::io::Result<PathBuf>,
    arguments: Vec<OsString>,
    options: ServeOptions,
    /// False once a keeper, without which the region is lost, is gone.
    is_lasting: Box<dyn Fn() -> bool + Send + Sync>,
    is_asked: AtomicBool,
}

impl Upgrade {
    /// The same program with the same arguments.
    pub(super) fn new(options: &ServeOptions, is_lasting: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self {
            program: std::env::current_exe(),
            arguments: std::env::args_os().skip(1).collect(),
            options: options.clone(),
            is_lasting: Box::new(is_lasting),
            is_asked: AtomicBool::new(false),
        }
    }

    /// Prepares the upgrade; true if the server is to stop for it.
    pub(super) fn ask(&self) -> bool {
        let ready = self.check().and_then(|()| keep_listeners().context("cannot keep the listening sockets"));
        if let Err(error) = &ready {
            tracing::error!("SIGUSR2: {error:#}");
        }
        self.is_asked.store(ready.is_ok(), Relaxed);
        ready.is_ok()
    }

    /// Refuses what is known to fail, as long as this program can go on.
    fn check(&self) -> anyhow::Result<()> {
        let has_region = self.options.region.is_some();
        let keeps_items = has_region || self.options.flash.flash.is_some();
        ensure!(keeps_items, "an upgrade would lose all items: it needs --region or --flash");
        let lost = if self.options.keeps_on_flash() {
            "the next program could not go on with this memory"
        } else {
            "an upgrade would lose all items"
        };
        ensure!(!has_region || (self.is_lasting)(), "{lost}: the keeper is gone");
        if let Some(RegionPlace::Keeper { socket, .. }) = &self.options.region {
            check_keeper(socket)?;
        }
        // The process has given up rights that it had at its start.
        let is_confined = self.options.security.is_confined();
        ensure!(!is_confined, "after --user or --sandbox no other program can be started");
        let program =
            self.program.as_ref().map_err(|error| anyhow::anyhow!("no path of the program: {error}"))?;
        access(program, Access::EXEC_OK).with_context(|| program.display().to_string())?;
        if let Some(path) = &self.options.config {
            let arguments: Vec<_> = self.arguments.iter().skip(1).cloned().collect();
            let next = config_file::merged(path, &arguments)?;
            let (server, asked) = next.configs()?;
            server.check()?;
            next.native.transports()?;
            keys(&next.admin, server.tls.as_ref().map(|tls| &tls.acceptor))?;
            if has_region {
                self.check_region(&next, &asked)?;
            }
        }
        Ok(())
    }

    /// Refuses options with which the region cannot be opened.
    fn check_region(&self, next: &ServeOptions, asked: &StoreConfig) -> anyhow::Result<()> {
        let (_, made) = self.options.configs()?;
        // Above flash the largest item may be the table's to say, so that only the next program knows the reserve.
        let reserves = match (&next.flash.flash, next.engine) {
            (None, EngineKind::Cache) => [&made, asked].map(|config| Some(config.reserve_bytes())),
            (None, EngineKind::Store) => [None; 2],
            (Some(_), _) => [made.large_bytes_min, asked.large_bytes_min],
        };
        let is_same_option = made.large_bytes_min == asked.large_bytes_min;
        let reserve = if is_same_option { "max-item-size" } else { "large-reserve" };
        let changes = [
            ("region", self.options.region != next.region),
            ("engine", self.options.engine != next.engine),
            ("flash", self.options.flash.flash.is_some() != next.flash.flash.is_some()),
            ("memory", made.memory_bytes != asked.memory_bytes),
            ("partitions", made.partitions != asked.partitions),
            ("hash-seed", self.options.given_seed() != next.given_seed()),
            ("micro-shards", made.micro_shards != asked.micro_shards),
            (reserve, reserves[0] != reserves[1]),
        ];
        let changed = changes.iter().find(|(_, has_changed)| *has_changed);
        changed.map_or(Ok(()), |(name, _)| {
            bail!("a region is served with the options that it was made with: `{name}` has changed")
        })
    }

    /// Gives the upgrade up, if it was asked for; true if it was.
    pub(super) fn cancel(&self) -> bool {
        let was_asked = self.is_asked.swap(false, Relaxed);
        if was_asked {
            release_listeners();
        }
        was_asked
    }

    /// Runs the program if it was asked for. To be called when everything is closed, and all threads have ended.
    pub(super) fn run_if_asked(&self) {
        if let (true, Ok(program)) = (self.is_asked.load(Relaxed), &self.program) {
            tracing::info!(program = %program.display(), "starting the new program");
            replace_process(program, &self.arguments);
        }
    }
}

/// Closes sockets of the program before that no option names any more, and warns of others.
pub(super) fn tell_unused() {
    for address in close_unused_sockets() {
        tracing::warn!(%address, "a socket was passed on that no option names: nobody accepts its connections");
    }
}
