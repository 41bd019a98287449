//! Who a connection is.

use std::{
    collections::HashSet,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use crate::{
    acl::Acl,
    secret::{PASSWORD_BYTES_MAX, Secret},
    user::User,
};

/// The user that a connection is without a password, if it is open.
const DEFAULT: &[u8] = b"default";
/// The hash of no password. Wrong ones are checked against it too, until each user's and nobody's took as many checks.
const NOBODY: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$bm9ib2R5a25vd3NpdA$MDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDA";

/// The users in force, and the passwords that were found right.
pub struct Authority {
    state: Mutex<State>,
    /// Number of the users in force, from 1.
    version: AtomicU64,
    /// Of the fingerprints: nobody outside can make one.
    key: [u8; blake3::KEY_LEN],
    pub(crate) nobody: Option<Secret>,
}

struct State {
    acl: Arc<Acl>,
    /// Fingerprints of names and passwords that were right, at most as many as there are hashes.
    known: HashSet<blake3::Hash>,
}

/// The result of a login.
#[derive(Debug)]
pub enum Login {
    /// The connection is this user.
    Granted(Arc<User>),
    /// Only a slow check tells.
    Slow(Credentials),
    /// It is nobody.
    Refused,
}

/// A name and a password that are still to be checked.
pub struct Credentials {
    name: Box<[u8]>,
    password: Box<[u8]>,
}

impl Authority {
    /// An authority over the users of `acl`. `key` must be random.
    pub fn new(acl: Acl, key: [u8; blake3::KEY_LEN]) -> Self {
        let state = Mutex::new(State { acl: Arc::new(acl), known: HashSet::new() });
        Self { state, version: AtomicU64::new(1), key, nobody: Secret::parse(NOBODY).ok() }
    }

    /// The users in force.
    pub fn acl(&self) -> Arc<Acl> {
        Arc::clone(&self.state().acl)
    }

    /// Puts other users in force. Connections notice by [`version`](Self::version).
    pub fn replace(&self, acl: Acl) {
        self.put(&mut self.state(), acl);
    }

    /// Changes the users in force in one step; not at all after an error.
    ///
    /// # Errors
    /// That of `change`.
    pub fn change<T, E>(&self, change: impl FnOnce(&mut Acl) -> Result<T, E>) -> Result<T, E> {
        let mut state = self.state();
        let mut acl = Acl::clone(&state.acl);
        let done = change(&mut acl)?;
        self.put(&mut state, acl);
        Ok(done)
    }

    fn put(&self, state: &mut State, acl: Acl) {
        *state = State { acl: Arc::new(acl), known: HashSet::new() };
        self.version.fetch_add(1, Relaxed);
    }

    /// A number that changes with the users.
    #[inline]
    pub fn version(&self) -> u64 {
        // The lock orders the users themselves.
        self.version.load(Relaxed)
    }

    /// The user that a connection is before it has said a name; `None` if it must.
    pub fn default_user(&self) -> Option<Arc<User>> {
        let acl = self.acl();
        acl.user(DEFAULT).filter(|user| user.is_on() && user.is_open()).cloned()
    }

    /// The user as it is now; `None` if it is gone, or would not be let in with the same password.
    pub fn renewed(&self, user: &User) -> Option<Arc<User>> {
        let acl = self.acl();
        acl.user(user.name().as_bytes()).filter(|now| now.admits_as(user)).cloned()
    }

    /// Who a connection is that says this name and password.
    pub fn login(&self, name: &[u8], password: &[u8]) -> Login {
        if password.len() > PASSWORD_BYTES_MAX {
            return Login::Refused;
        }
        let state = self.state();
        if let Some(user) = state.acl.user(name).filter(|user| user.is_on()) {
            let is_granted = user.is_open() || state.known.contains(&self.fingerprint(name, password));
            if is_granted {
                return Login::Granted(Arc::clone(user));
            }
        }
        drop(state);
        Login::Slow(Credentials { name: name.into(), password: password.into() })
    }

    /// Checks a password. Takes tens of milliseconds for each hash of the user that has most. That is so for all wrong ones,
    /// so that the time does not tell whether there is such a user, if all hashes have the costs of
    /// [`hash`](crate::hash).
    pub fn verify(&self, credentials: &Credentials) -> Option<Arc<User>> {
        let Credentials { name, password } = credentials;
        let version = self.version();
        let acl = self.acl();
        let user = acl.user(name).filter(|user| user.is_on()).cloned();
        let is_right = |user: &Arc<User>| user.is_open() || user.knows(password);
        let Some(user) = user.clone().filter(is_right) else {
            for _ in 0..checks_left(&acl, user.as_deref()) {
                self.nobody.as_ref().map(|nobody| nobody.is_of(password));
            }
            return None;
        };
        let mut state = self.state();
        // What was right for users of before says nothing.
        if self.version() == version && !user.is_open() {
            state.known.insert(self.fingerprint(name, password));
        }
        drop(state);
        self.renewed(&user)
    }

    fn fingerprint(&self, name: &[u8], password: &[u8]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&(name.len() as u64).to_le_bytes()).update(name).update(password);
        hasher.finalize()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Both parts are replaced or added to as a whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many checks a wrong password still takes behind those of `user`.
pub(crate) fn checks_left(acl: &Acl, user: Option<&User>) -> usize {
    let most = acl.users().map(|user| user.hash_count()).max().unwrap_or(0).max(1);
    most - user.map_or(0, User::hash_count)
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Authority").field(&self.acl()).finish()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}
