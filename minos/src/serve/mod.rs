//! `minos serve`: the server.

mod available;
mod config_file;
mod confine;
mod descriptors;
mod dpdk;
mod fabric;
mod flash;
mod memory;
mod native;
mod numa;
mod options;
pub(crate) mod rack;
mod region;
mod security;
mod signals;
mod upgrade;
mod values;
mod watch;

use std::{io::Write, sync::Arc};

use anyhow::Context as _;
use minos_engine::{
    Access, CacheMode, Crcw, Crew, Engine, Erew, Mode, StoreConfig, StoreMode, position::Wide,
};
use minos_net::is_upgrade;
use minos_node::{Server, ServerConfig, StartError, config::Verbosity};

pub(crate) use available::memory_of_machine;
pub(crate) use options::ServeOptions;
pub(crate) use values::{AccessMode, random_seed};
#[cfg(feature = "lab")]
pub(crate) use values::{Evict, Switch, names, parse_backing};

use crate::{admin::Reserved, rack::end_with_parent};
use flash::{Above, FlashPath};
use region::Watch;
use signals::Heeding;
use upgrade::Upgrade;
use values::EngineKind;

/// Starts a server and serves until a signal or a client asks it to stop.
pub(crate) fn run(options: &ServeOptions, verbosity: Arc<Verbosity>) -> anyhow::Result<()> {
    signals::ignore_early()?;
    descriptors::raise_limit();
    let mut options = match &options.config {
        // The arguments after `minos serve` are parsed again, together with the file.
        Some(path) => config_file::merged(path, &std::env::args_os().skip(2).collect::<Vec<_>>())?,
        None => options.clone(),
    };
    // The table has the items of the program before.
    options.flash.flash_format &= !is_upgrade();
    let (mut server_config, store_config) = options.configs()?;
    server_config.verbosity = verbosity;
    if let Some(flash) = &options.flash.flash {
        return serve_above_flash(&options, flash, server_config, &store_config);
    }
    let serve = match options.access {
        AccessMode::Crcw => serve_in::<Crcw>,
        AccessMode::Crew => serve_in::<Crew>,
        AccessMode::Erew => serve_in::<Erew>,
    };
    serve(&options, server_config, &store_config)
}

/// Serves a table in the access mode `W`.
fn serve_in<W: Access + Copy + Eq>(
    options: &ServeOptions,
    server_config: ServerConfig,
    store_config: &StoreConfig,
) -> anyhow::Result<()> {
    match options.engine {
        EngineKind::Cache => serve::<CacheMode<Wide, W>>(options, server_config, store_config),
        EngineKind::Store => serve::<StoreMode<W>>(options, server_config, store_config),
    }
}

/// Serves a table in the mode `M`.
fn serve<M: Mode>(
    options: &ServeOptions,
    mut server_config: ServerConfig,
    store_config: &StoreConfig,
) -> anyhow::Result<()> {
    let (store, clock) = memory::open::<M>(options, store_config)?;
    server_config.clock = clock;
    let watch = Watch::start(&store_config.backing, &store, options.keeps_on_flash())?;
    let transports = options.native.transports()?;
    let start = |config| transports.start(config, Arc::clone(&store));
    let upgrade = Upgrade::new(options, lasting(&store));
    let heeding = serve_until_stopped(options, server_config, upgrade, start)?;
    drop(watch);
    memory::close(options, store)?;
    tracing::info!("stopped");
    heeding.end()
}

/// Serves a table whose items leave memory for flash.
fn serve_above_flash(
    options: &ServeOptions,
    flash: &FlashPath,
    mut server_config: ServerConfig,
    store_config: &StoreConfig,
) -> anyhow::Result<()> {
    if options.flash.makes_table(flash) {
        flash::check_before_making(options, &server_config)?;
    }
    let is_fixed = options.max_item_size.is_some();
    let above = Above {
        engine: options.engine,
        has_region: options.region.is_some(),
        hash_seed: options.given_seed(),
        is_in_rack: server_config.rack.is_some(),
        is_managed: server_config.rack.as_ref().is_some_and(|rack| rack.managed.is_some()),
    };
    let (keeper, clock) = options.flash.open(flash, above, store_config, is_fixed)?;
    let store = Arc::clone(keeper.tier().engine());
    server_config.clock = clock;
    server_config.value_bytes_max = keeper.tier().engine().value_bytes_max();
    let watch = Watch::start(&store_config.backing, &store, options.keeps_on_flash())?;
    let transports = options.native.transports()?;
    let start = |config| transports.start_above_flash(config, keeper);
    let upgrade = Upgrade::new(options, lasting(&store));
    let heeding = serve_until_stopped(options, server_config, upgrade, start)?;
    drop(watch);
    memory::close(options, store)?;
    tracing::info!("stopped");
    heeding.end()
}

/// Tells whether the items outlive the process. The table may be closed meanwhile.
fn lasting<M: Mode>(store: &Arc<Engine<M>>) -> impl Fn() -> bool + use<M> {
    let store = Arc::downgrade(store);
    move || store.upgrade().is_some_and(|store| store.is_lasting())
}

/// Starts a server, and waits until a signal or a client has stopped it.
fn serve_until_stopped(
    options: &ServeOptions,
    mut config: ServerConfig,
    upgrade: Upgrade,
    start: impl FnOnce(ServerConfig) -> Result<Server, StartError>,
) -> anyhow::Result<Heeding> {
    // Set up before any client can find the server and stop it.
    let signals = signals::heeded()?;
    let reload = options.security.files(&config);
    if options.rack.ends_with_parent {
        end_with_parent(signals::ORPHANED)?;
    }
    let admin = Reserved::take(&options.admin, config.tls.as_ref().map(|tls| &tls.acceptor))?;
    let admin_address = admin.as_ref().map(|admin| admin.address().to_string());
    config.store_settings.extend(admin_address.clone().map(|address| ("admin", address)));
    let handshakes = config.tls.as_ref().map_or(0, |tls| tls.handshakes_max);
    let server = start(config)?;
    let reserved = handshakes + options.admin.connections();
    descriptors::fit_connections(&server.operator(), options.max_connections, reserved)?;
    let heeding = Heeding::begin(signals, &server, (reload, upgrade))?;
    // It holds a reference to the store, and ends with this function.
    let _admin = admin.map(|admin| admin.serve(server.operator())).transpose()?;
    // Before the line for which scripts wait.
    options.security.confine(options.flash.flash.is_some())?;
    announce(&server, options, admin_address.as_deref())
        .context("the addresses cannot be printed to standard output")?;
    upgrade::tell_unused();
    server.join()?;
    Ok(heeding)
}

/// Prints the addresses, for people and for scripts that wait for them.
fn announce(server: &Server, options: &ServeOptions, admin: Option<&str>) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for address in server.addresses() {
        writeln!(out, "listening on memcached {address}")?;
    }
    for address in server.resp_addresses() {
        writeln!(out, "listening on resp {address}")?;
    }
    if let Some(address) = server.native_address() {
        writeln!(out, "listening on native {address}")?;
    }
    if let Some(address) = admin {
        writeln!(out, "listening on admin {address}")?;
    }
    out.flush()?;
    tracing::info!(
        workers = options.workers(),
        dispatch = %options.dispatch(),
        poll = %options.poll,
        "serving"
    );
    Ok(())
}
