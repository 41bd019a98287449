//! A user: the rules as they were given, and what follows from them.

use std::fmt;

use crate::{
    keys::{Access, KeyRule},
    secret::Secret,
    table::{COMMANDS_MAX, Categories, CommandSet, Tables},
};

/// Most hashes of a user, and most rules for keys and for commands.
const HASHES_MAX: usize = 8;
const RULES_MAX: usize = 256;
const NAME_BYTES_MAX: usize = 64;
/// Between the name of a command and that of its subcommand.
const SUBCOMMAND: char = '|';

/// A rule that does not apply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{rule}: {reason}")]
pub struct RuleError {
    /// The rule; without the hash, if it is one.
    pub rule: String,
    /// What is wrong.
    pub reason: String,
}

/// A user and its rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    name: Box<str>,
    is_on: bool,
    /// It needs no password.
    is_open: bool,
    secrets: Vec<Secret>,
    keys: Vec<KeyRule>,
    commands: Vec<CommandRule>,
    /// The commands that follow from the rules, by table.
    allowed: Vec<CommandSet>,
}

/// A rule for commands. Later ones prevail.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CommandRule {
    allows: bool,
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    All,
    Category(&'static str, Categories),
    Command(&'static str),
}

impl User {
    /// A user that may do nothing: off, without password, keys and commands.
    ///
    /// # Errors
    /// The name has spaces or other characters that a file does not take, or is too long.
    pub(crate) fn new(name: &str, tables: Tables) -> Result<Self, RuleError> {
        debug_assert!(tables.iter().all(|table| table.len() <= COMMANDS_MAX));
        let is_plain = |c: char| c.is_ascii_graphic();
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(is_plain) {
            let reason = format!("a name has 1 to {NAME_BYTES_MAX} visible ASCII characters");
            return Err(RuleError { rule: name.escape_debug().to_string(), reason });
        }
        Ok(Self {
            name: name.into(),
            is_on: false,
            is_open: false,
            secrets: Vec::new(),
            keys: Vec::new(),
            commands: Vec::new(),
            allowed: vec![CommandSet::default(); tables.len()],
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// True if connections may be this user.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// True if it needs no password.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// True if it may use the command with this number in the table with that number.
    #[inline]
    pub fn may_run(&self, table: usize, command: usize) -> bool {
        self.allowed.get(table).is_some_and(|allowed| allowed.has(command))
    }

    /// True if it may use `key` so. As in Redis one rule must allow it: two that read and write are not one for both.
    #[inline]
    pub fn may_access(&self, key: &[u8], access: Access) -> bool {
        self.keys.iter().any(|rule| rule.allows(key, access))
    }

    /// The number of its passwords.
    pub(crate) fn hash_count(&self) -> usize {
        self.secrets.len()
    }

    /// True if `password` is one of its own. Takes tens of milliseconds.
    pub(crate) fn knows(&self, password: &[u8]) -> bool {
        self.secrets.iter().any(|secret| secret.is_of(password))
    }

    /// True if `other` is let in by the same passwords.
    pub(crate) fn admits_as(&self, other: &Self) -> bool {
        let has_same = !self.secrets.is_empty() && self.secrets == other.secrets;
        self.is_on && (self.is_open || has_same)
    }

    /// Applies one rule.
    ///
    /// # Errors
    /// The rule is unknown, names what is not there, or is one too many.
    pub(crate) fn apply(&mut self, rule: &str, tables: Tables) -> Result<(), RuleError> {
        self.try_apply(rule, tables).map_err(|reason| {
            let is_secret = rule.starts_with(['#', '!', '>', '<']);
            let shown =
                if is_secret { rule[..1].to_owned() + "..." } else { rule.escape_debug().to_string() };
            RuleError { rule: shown, reason }
        })
    }

    fn try_apply(&mut self, rule: &str, tables: Tables) -> Result<(), String> {
        if let Some(key_rule) = KeyRule::parse(rule) {
            return add(&mut self.keys, key_rule?, RULES_MAX);
        }
        match rule.to_ascii_lowercase().as_str() {
            "on" => self.is_on = true,
            "off" => self.is_on = false,
            "nopass" => (self.is_open, self.secrets) = (true, Vec::new()),
            "resetpass" => (self.is_open, self.secrets) = (false, Vec::new()),
            "allkeys" => return self.try_apply("~*", tables),
            "resetkeys" => self.keys.clear(),
            "allcommands" => return self.try_apply("+@all", tables),
            "nocommands" => return self.try_apply("-@all", tables),
            "reset" => {
                let fresh = Self::new(&self.name, tables).map_err(|error| error.reason)?;
                *self = fresh;
            }
            _ => return self.apply_marked(rule, tables),
        }
        Ok(())
    }

    /// Applies a rule that begins with a mark.
    fn apply_marked(&mut self, rule: &str, tables: Tables) -> Result<(), String> {
        if let Some(hash) = rule.strip_prefix('#') {
            let secret = Secret::parse(hash)?;
            self.is_open = false;
            return add(&mut self.secrets, secret, HASHES_MAX);
        }
        if let Some(hash) = rule.strip_prefix('!') {
            let (secret, before) = (Secret::parse(hash)?, self.secrets.len());
            self.secrets.retain(|known| *known != secret);
            let is_gone = self.secrets.len() < before;
            return if is_gone { Ok(()) } else { Err("the user has no such hash".to_owned()) };
        }
        if rule.starts_with(['>', '<']) {
            return Err("a password itself has no place here: use # and `minos secret --hash`".to_owned());
        }
        match (rule.strip_prefix('+'), rule.strip_prefix('-')) {
            (Some(what), _) => self.apply_command(true, what, tables),
            (_, Some(what)) => self.apply_command(false, what, tables),
            _ if rule.starts_with(['&', '(']) => Err("channels and selectors are not served".to_owned()),
            _ => Err("there is no such rule".to_owned()),
        }
    }

    fn apply_command(&mut self, allows: bool, what: &str, tables: Tables) -> Result<(), String> {
        let what = What::named(what, tables)?;
        // An earlier rule about the same has no effect any more, nor has any before one about all.
        self.commands.retain(|rule| what != What::All && rule.what != what);
        for (table, allowed) in tables.iter().zip(&mut self.allowed) {
            for (number, entry) in
                table.iter().enumerate().filter(|(_, entry)| what.holds(entry.name, entry.categories))
            {
                debug_assert!(!entry.name.is_empty());
                allowed.put(number, allows);
            }
        }
        add(&mut self.commands, CommandRule { allows, what }, RULES_MAX)
    }
}

/// Adds to a list what it does not have yet.
fn add<T: PartialEq>(list: &mut Vec<T>, item: T, max: usize) -> Result<(), String> {
    if list.contains(&item) {
        return Ok(());
    }
    if list.len() == max {
        return Err(format!("a user has at most {max} of them"));
    }
    list.push(item);
    Ok(())
}

impl What {
    /// What a rule names. A command stands for its subcommands too, as in Redis.
    fn named(name: &str, tables: Tables) -> Result<Self, String> {
        match name.strip_prefix('@') {
            Some(all) if all.eq_ignore_ascii_case("all") => Ok(Self::All),
            Some(category) => {
                let known = Categories::NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(category));
                let (name, category) = known.ok_or("there is no such category")?;
                Ok(Self::Category(name, *category))
            }
            None => {
                let mut all = tables.iter().flat_map(|table| table.iter());
                let known = all.find(|entry| entry.name.eq_ignore_ascii_case(name));
                known.map(|entry| Self::Command(entry.name)).ok_or("there is no such command".to_owned())
            }
        }
    }

    fn holds(&self, name: &str, categories: Categories) -> bool {
        match self {
            Self::All => true,
            Self::Category(_, category) => categories.meets(*category),
            Self::Command(command) => {
                let rest = name.strip_prefix(command);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(SUBCOMMAND))
            }
        }
    }
}

impl User {
    /// The hashes of its passwords.
    pub fn hashes(&self) -> impl Iterator<Item = String> {
        self.secrets.iter().map(ToString::to_string)
    }

    /// Its rules for keys, as the file has them.
    pub fn key_rules(&self) -> String {
        joined(self.keys.iter())
    }

    /// Its rules for commands, the first of which is about all.
    pub fn command_rules(&self) -> String {
        let rules = joined(self.commands.iter());
        match self.commands.first() {
            Some(CommandRule { what: What::All, .. }) => rules,
            None => "-@all".to_owned(),
            Some(_) => format!("-@all {rules}"),
        }
    }
}

fn joined<T: ToString>(rules: impl Iterator<Item = T>) -> String {
    rules.map(|rule| rule.to_string()).collect::<Vec<_>>().join(" ")
}

impl fmt::Display for CommandRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.allows { "+" } else { "-" })?;
        match &self.what {
            What::All => f.write_str("@all"),
            What::Category(name, _) => write!(f, "@{name}"),
            What::Command(name) => f.write_str(name),
        }
    }
}

/// A line of the file.
impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "user {} {}", self.name, if self.is_on { "on" } else { "off" })?;
        if self.is_open {
            f.write_str(" nopass")?;
        }
        self.secrets.iter().try_for_each(|secret| write!(f, " #{secret}"))?;
        self.keys.iter().try_for_each(|rule| write!(f, " {rule}"))?;
        self.commands.iter().try_for_each(|rule| write!(f, " {rule}"))?;
        Ok(())
    }
}
