//! All users.

use std::{collections::BTreeMap, fmt, sync::Arc};

use crate::{
    table::Tables,
    user::{RuleError, User},
};

/// Most users, and bytes of a file.
const USERS_MAX: usize = 1024;
const FILE_BYTES_MAX: usize = 1 << 20;

/// Why a file is of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct AclError {
    /// The number of the line, from 1.
    pub line: usize,
    /// What is wrong.
    pub reason: String,
}

/// All users by their names.
#[derive(Clone)]
pub struct Acl {
    users: BTreeMap<Box<str>, Arc<User>>,
    tables: Tables,
}

impl Acl {
    /// The users of a file, whose rules name commands of `tables`. Lines that are empty or begin with `#` say nothing.
    ///
    /// # Errors
    /// The first line that is no user, or whose rules do not apply.
    pub fn parse(text: &str, tables: Tables) -> Result<Self, AclError> {
        let mut acl = Self { users: BTreeMap::new(), tables };
        if text.len() > FILE_BYTES_MAX {
            return Err(AclError {
                line: 1,
                reason: format!("the file has more than {FILE_BYTES_MAX} bytes"),
            });
        }
        for (at, line) in text.lines().enumerate() {
            acl.take_line(line).map_err(|reason| AclError { line: at + 1, reason })?;
        }
        Ok(acl)
    }

    fn take_line(&mut self, line: &str) -> Result<(), String> {
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            None => return Ok(()),
            Some(word) if word.starts_with('#') => return Ok(()),
            Some("user") => {}
            Some(_) => return Err("expected `user NAME RULES...`".to_owned()),
        }
        let name = words.next().ok_or("a name is missing")?;
        if self.users.contains_key(name) {
            return Err(format!("the user {name} is there already"));
        }
        self.set_user(name, words).map_err(|error| error.to_string())
    }

    /// Applies `rules` to the user of this name, who is new if there is none. If one does not apply, none does.
    ///
    /// # Errors
    /// The first rule that does not apply, or there are too many users.
    pub fn set_user<'r>(
        &mut self,
        name: &str,
        rules: impl IntoIterator<Item = &'r str>,
    ) -> Result<(), RuleError> {
        let mut user = match self.users.get(name) {
            Some(user) => User::clone(user),
            None if self.users.len() >= USERS_MAX => {
                let reason = format!("there are {USERS_MAX} users already");
                return Err(RuleError { rule: name.to_owned(), reason });
            }
            None => User::new(name, self.tables)?,
        };
        rules.into_iter().try_for_each(|rule| user.apply(rule, self.tables))?;
        self.users.insert(name.into(), Arc::new(user));
        Ok(())
    }

    /// Removes a user; true if there was one.
    pub fn remove(&mut self, name: &str) -> bool {
        self.users.remove(name).is_some()
    }

    /// The user of this name.
    pub fn user(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.users.get(std::str::from_utf8(name).ok()?)
    }

    /// All users, by name.
    pub fn users(&self) -> impl Iterator<Item = &Arc<User>> {
        self.users.values()
    }
}

/// The file.
impl fmt::Display for Acl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.users().try_for_each(|user| writeln!(f, "{user}"))
    }
}

impl fmt::Debug for Acl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.users().map(|user| user.name())).finish()
    }
}
