//! Kills of a server with `--flash` under load, and a checker: each client changes keys of its own, and knows what was
//! acknowledged.

use std::{
    collections::BTreeMap,
    io,
    path::Path,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
    time::Duration,
};

use minos_base::seeded_stream;
use minos_testkit::{Client, Server};
use rand::RngExt as _;
use tempfile::TempDir;

use super::{Wanted, connect, keeper::Keeper, start};

const CLIENTS: u64 = 4;
/// With their values, more than memory holds.
const KEYS_A_CLIENT: u32 = 300;
const VALUE_BYTES_MAX: u32 = 9000;

/// The options of a store on which depends what a kill leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Promise {
    pub(crate) durability: &'static str,
    pub(crate) region: Region,
}

/// Where the memory is that outlives a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Region {
    None,
    File,
    Keeper,
}

impl Promise {
    fn serve(&self, folder: &Path, keeper: Option<&Keeper>) -> Server {
        let path = |name: &str| folder.join(name).display().to_string();
        let durability = format!("--durability={}", self.durability);
        let flash = format!("--flash={}:64m", path("flash"));
        let region = keeper.map_or_else(|| path("region"), |keeper| keeper.region("a"));
        let region = format!("--region={region}");
        let mut minos_only = vec!["--engine=store", &durability, &flash];
        minos_only.extend((self.region != Region::None).then_some(&*region));
        start(Wanted {
            memory: "4m",
            max_item_size: Some("64k"),
            minos_only: &minos_only,
            ..Wanted::default()
        })
    }
}

/// The version of a key that was acknowledged, or that of which it is not known; `None` is no item.
#[derive(Clone, Copy, Debug, Default)]
struct Key {
    acknowledged: Option<u32>,
    unknown: Option<Option<u32>>,
}

#[derive(Debug, Default)]
struct Keys {
    of: u64,
    keys: BTreeMap<u32, Key>,
    version: u32,
}

fn value(of: u64, key: u32, version: u32) -> Vec<u8> {
    let bytes = 20 + (version.wrapping_mul(2_654_435_761) >> 8) % VALUE_BYTES_MAX;
    format!("{of} {key} {version} ").into_bytes().into_iter().cycle().take(bytes as usize).collect()
}

impl Keys {
    fn name(&self, key: u32) -> String {
        format!("key{}-{key}", self.of)
    }

    /// Changes keys until the server is gone.
    fn change(&mut self, client: &mut Client, changes: &AtomicU64) -> io::Result<()> {
        let mut random = seeded_stream(self.version.into(), self.of);
        loop {
            let key = random.random_range(0..KEYS_A_CLIENT);
            let name = self.name(key);
            self.version += 1;
            let version = (!random.random_bool(0.2)).then_some(self.version);
            self.keys.entry(key).or_default().unknown = Some(version);
            let said = match version {
                Some(version) => client.set(&name, &value(self.of, key, version))?,
                None => client.ask(&format!("delete {name}"))?,
            };
            match said.as_str() {
                "STORED" | "DELETED" | "NOT_FOUND" => {
                    self.keys.insert(key, Key { acknowledged: version, unknown: None });
                }
                // Flash is behind: nothing was changed.
                "SERVER_ERROR out of memory storing object" => {
                    self.keys.entry(key).or_default().unknown = None;
                }
                other => return Err(io::Error::other(format!("{name}: {other}"))),
            }
            changes.fetch_add(1, Relaxed);
        }
    }

    /// Each key is as it was acknowledged, or as the change that was under way would leave it.
    fn check(&mut self, client: &mut Client, may_miss: bool) -> Result<(), String> {
        for (&key, state) in &mut self.keys {
            let name = format!("key{}-{key}", self.of);
            let found = client.get(&name).map_err(|error| format!("{name}: {error}"))?.map(|it| it.value);
            let is_it = |version: &Option<u32>| version.map(|it| value(self.of, key, it)) == found;
            let versions = [Some(state.acknowledged), state.unknown].into_iter().flatten();
            let found_version = versions.into_iter().find(is_it);
            let Some(version) = found_version.or((may_miss && found.is_none()).then_some(None)) else {
                let found = found.map(|it| String::from_utf8_lossy(&it[..it.len().min(30)]).into_owned());
                return Err(format!("{name}: {found:?} instead of {state:?}"));
            };
            *state = Key { acknowledged: version, unknown: None };
        }
        Ok(())
    }
}

/// Kills a server so often, and checks it after each kill.
pub(crate) fn kill_and_check(promise: Promise, kills: u64, seed: u64) {
    let folder = TempDir::with_prefix("minos-kills-").unwrap();
    let keeper = (promise.region == Region::Keeper).then(|| Keeper::start(folder.path(), &[]));
    let mut clients: Vec<Keys> = (0..CLIENTS).map(|of| Keys { of, ..Keys::default() }).collect();
    let mut random = seeded_stream(seed, CLIENTS);
    let mut server = promise.serve(folder.path(), keeper.as_ref());
    for kill in 0..kills {
        let changes = AtomicU64::new(0);
        let least = random.random_range(50..1500);
        thread::scope(|scope| {
            let threads: Vec<_> = clients
                .iter_mut()
                .map(|keys| {
                    let (mut client, changes) = (connect(&server), &changes);
                    scope.spawn(move || keys.change(&mut client, changes))
                })
                .collect();
            while changes.load(Relaxed) < least && !threads.iter().any(|thread| thread.is_finished()) {
                thread::sleep(Duration::from_micros(200));
            }
            let is_early = changes.load(Relaxed) < least;
            let log = server.log();
            // Dropping it kills it.
            drop(server);
            let errors: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            assert!(!is_early, "{promise:?}: {errors:?}\n{log}");
        });
        server = promise.serve(folder.path(), keeper.as_ref());
        let log = server.log();
        // A chain of buckets that was being changed is lost with a region, and the log says so.
        let is_cut = log.contains("repaired") && !log.contains(" 0 dropped");
        let may_miss = is_cut && promise.durability != "flush";
        let mut client = connect(&server);
        for keys in &mut clients {
            let checked = keys.check(&mut client, may_miss);
            let stats = |_| ["flash", "minos"].map(|group| connect(&server).stats(group));
            let failed = checked.as_ref().err().map(stats);
            assert!(checked.is_ok(), "{promise:?}, seed {seed}, kill {kill}: {checked:?}\n{log}{failed:?}");
        }
    }
}
