//! Who a connection is, and what it may do. Only connections of a server with users have any of this.

mod denials;
mod users_file;

use std::{
    collections::VecDeque,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use minos_access::{Authority, Credentials, Login, Tables, User};
use minos_engine::Mode;
use minos_net::Io;
use parking_lot::{Condvar, Mutex};

use crate::{
    memcache::COMMANDS, ops::counters::Counters, resp, server::config::AccessConfig, server::shared::Shared,
    tcp::connection::Connection,
};
pub(crate) use denials::{Denials, Reason};
pub use users_file::read_users;
use users_file::write_users;

/// The commands of all protocols, as rules name them.
pub const ACCESS_TABLES: Tables = &[COMMANDS, resp::COMMANDS];
/// The number of memcached's table.
pub(crate) const MEMCACHE: usize = 0;
/// That of Redis'.
pub(crate) const RESP: usize = 1;

/// A connection's identity.
pub(crate) struct Guard {
    authority: Arc<Authority>,
    denials: Arc<Denials>,
    /// Who it is, once it has said so.
    user: Option<Arc<User>>,
    /// Number of the users from whom `user` is.
    version: u64,
    /// The result of a task, until the command that has asked for it is executed again.
    verdict: Option<Verdict>,
    /// The user as others see it.
    badge: Arc<Badge>,
}

/// The user that a connection was when it last said so, for CLIENT LIST and CLIENT KILL of others.
#[derive(Debug, Default)]
pub(crate) struct Badge(Mutex<Option<Arc<User>>>);

impl Badge {
    /// The user, as the users in force have it.
    pub(crate) fn user(&self, authority: &Authority) -> Option<Arc<User>> {
        let user = self.0.lock().clone();
        user.and_then(|user| authority.renewed(&user)).or_else(|| authority.default_user())
    }

    /// True if the users in force have none of its name any more. Nobody needs to have said `default`.
    pub(crate) fn is_deleted(&self, authority: &Authority) -> bool {
        let named = self.0.lock().clone().filter(|user| user.name() != "default");
        named.is_some_and(|user| authority.acl().user(user.name().as_bytes()).is_none())
    }
}

/// What takes too long for a worker.
#[derive(Debug)]
pub(crate) enum Task {
    /// The check of a password.
    Verify(Credentials),
    /// The users are read from their file.
    Load,
    /// They are written there.
    Save,
}

/// The result of a task.
enum Verdict {
    /// Who the connection is, if the password is right.
    User(Option<Arc<User>>),
    /// The end of the work with the file.
    File(Result<(), String>),
}

/// The result of a login.
pub(crate) enum LoggedIn {
    /// The connection is who it says.
    Yes,
    /// It is not, and keeps its user if it has one.
    No,
    /// Only a slow check tells: the command is executed again when its verdict is there.
    Wait(Box<Task>),
}

impl Guard {
    pub(crate) fn new(access: &AccessConfig) -> Box<Self> {
        Self::of(&access.authority, &access.denials, Arc::default())
    }

    fn of(authority: &Arc<Authority>, denials: &Arc<Denials>, badge: Arc<Badge>) -> Box<Self> {
        // In this order: users that come meanwhile are noticed.
        let version = authority.version();
        let user = authority.default_user();
        badge.0.lock().clone_from(&user);
        let (authority, denials) = (Arc::clone(authority), Arc::clone(denials));
        Box::new(Self { authority, denials, user, version, verdict: None, badge })
    }

    /// The guard of the same connection, as if it had just come.
    pub(crate) fn anew(&self) -> Box<Self> {
        Self::of(&self.authority, &self.denials, Arc::clone(&self.badge))
    }

    /// Its user as others see it.
    pub(crate) fn badge(&self) -> &Arc<Badge> {
        &self.badge
    }

    /// What clients were refused.
    pub(crate) fn denials(&self) -> &Arc<Denials> {
        &self.denials
    }

    /// True if the next command has asked for work with the file that is done now.
    pub(crate) fn has_file_verdict(&self) -> bool {
        matches!(self.verdict, Some(Verdict::File(_)))
    }

    /// The end of the work with the file, once that is there.
    pub(crate) fn take_file_verdict(&mut self) -> Option<Result<(), String>> {
        match self.verdict.take()? {
            Verdict::File(result) => Some(result),
            // Of a login that was given up.
            Verdict::User(_) => None,
        }
    }

    /// The users of the server.
    pub(crate) fn authority(&self) -> &Arc<Authority> {
        &self.authority
    }

    /// The user, as the users in force have it.
    #[inline]
    pub(crate) fn user(&mut self) -> Option<&Arc<User>> {
        if self.version != self.authority.version() {
            self.renew();
        }
        self.user.as_ref()
    }

    #[cold]
    fn renew(&mut self) {
        self.version = self.authority.version();
        let user = self.user.take();
        self.user =
            user.and_then(|user| self.authority.renewed(&user)).or_else(|| self.authority.default_user());
    }

    /// Logs in, or goes on with that after a slow check.
    pub(crate) fn log_in(&mut self, name: &[u8], password: &[u8], counters: &Counters) -> LoggedIn {
        let granted = match self.verdict.take() {
            Some(Verdict::User(verdict)) => verdict,
            _ => match self.authority.login(name, password) {
                Login::Granted(user) => Some(user),
                Login::Refused => None,
                Login::Slow(credentials) => return LoggedIn::Wait(Box::new(Task::Verify(credentials))),
            },
        };
        counters.auth_cmds.count();
        let Some(user) = granted else {
            counters.auth_errors.count();
            return LoggedIn::No;
        };
        self.version = self.authority.version();
        self.user = self.authority.renewed(&user);
        self.badge.0.lock().clone_from(&self.user);
        if self.user.is_some() { LoggedIn::Yes } else { LoggedIn::No }
    }
}

/// Connections that wait for tasks: most for the check of a password.
pub(crate) struct Checks {
    state: Mutex<ChecksState>,
    /// There is something new in the state.
    news: Condvar,
    waiting_max: AtomicUsize,
    /// Logins refused because too many waited.
    refused: AtomicU64,
}

#[derive(Default)]
struct ChecksState {
    /// Work with the file is in front of all checks.
    waiting: VecDeque<(Box<Connection>, Box<Task>)>,
    /// The thread that checks ends.
    is_closed: bool,
}

impl Checks {
    pub(crate) fn new(access: Option<&AccessConfig>) -> Self {
        let waiting_max = AtomicUsize::new(access.map_or(0, |access| access.waiting_max));
        Self { state: Mutex::default(), news: Condvar::new(), waiting_max, refused: AtomicU64::new(0) }
    }

    /// Lets a connection wait for its verdict. Work with the file is for those who have logged in: strangers who guess
    /// passwords neither keep it out nor delay it.
    ///
    /// # Errors
    /// Gives it back, because too many wait already.
    pub(crate) fn wait(&self, connection: Box<Connection>, task: Box<Task>) -> Result<(), Box<Connection>> {
        let mut state = self.state.lock();
        let is_guess = |task: &Task| matches!(task, Task::Verify(_));
        let with_file = state.waiting.iter().take_while(|(_, task)| !is_guess(task)).count();
        let (guesses, is_one) = (state.waiting.len() - with_file, is_guess(&task));
        if state.is_closed || is_one && guesses >= self.waiting_max.load(Relaxed) {
            self.refused.fetch_add(1, Relaxed);
            return Err(connection);
        }
        let at = if is_one { state.waiting.len() } else { with_file };
        state.waiting.insert(at, (connection, task));
        self.news.notify_one();
        Ok(())
    }

    /// Changes how many may wait.
    pub(crate) fn set_waiting_max(&self, waiting_max: usize) {
        self.waiting_max.store(waiting_max, Relaxed);
    }

    /// Logins refused so far because too many waited.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Ends the thread; those who wait are closed.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.waiting.clear();
        self.news.notify_one();
    }

    fn next(&self) -> Option<(Box<Connection>, Box<Task>)> {
        let mut state = self.state.lock();
        loop {
            if state.is_closed {
                return None;
            }
            if let Some(next) = state.waiting.pop_front() {
                return Some(next);
            }
            self.news.wait(&mut state);
        }
    }
}

/// Does the tasks of connections until the server is to stop.
pub(crate) fn check<M: Mode, I: Io>(shared: &Shared<M, I>, access: &AccessConfig) {
    while let Some((mut connection, task)) = shared.checks.next() {
        let verdict = match &*task {
            Task::Verify(credentials) => Verdict::User(access.authority.verify(credentials)),
            Task::Load => Verdict::File(load(&access.file, &access.authority)),
            Task::Save => {
                let saved = write_users(&access.file, &access.authority.acl());
                Verdict::File(saved.map_err(|error| error.to_string()))
            }
        };
        if let Some(guard) = connection.session.guard() {
            guard.verdict = Some(verdict);
        }
        shared.give_back(connection);
    }
}

/// Puts the users of the file in force.
fn load(file: &Path, authority: &Authority) -> Result<(), String> {
    authority.replace(read_users(file)?);
    Ok(())
}
