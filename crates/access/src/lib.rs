//! Users, their secrets, and which keys and commands they may use. No I/O: the caller reads the file, and gives the slow
//! check of a password a thread of its own.
//!
//! The file is Redis' ACL file: a line a user, with rules that apply from left to right. Passwords are Argon2 hashes.
//!
//! ```text
//! user default off
//! user app  on #$argon2id$v=19$m=19456,t=2,p=1$...$... ~session:* %R~config:* +@read +@write -@dangerous
//! user view on #$argon2id$... ~* +@read
//! ```
//!
//! # How a protocol calls it
//!
//! A protocol has a table of its commands, an [`Entry`] each with its name and [`Categories`]; all tables together are given
//! to [`Acl::parse`], and rules name the commands of all. A connection holds an `Arc<User>` once it has one:
//!
//! - At the begin it takes [`Authority::default_user`]; `None` means that it must authenticate first.
//! - AUTH, HELLO AUTH and SASL call [`Authority::login`]. [`Login::Granted`] is the user. [`Login::Slow`] takes tens of
//!   milliseconds: the connection goes to the thread that calls [`Authority::verify`].
//! - Each command asks [`User::may_run`] with the number of the table and of the command in it, and
//!   [`User::may_access`] for each key.
//! - If [`Authority::version`] has changed, [`Authority::renewed`] gives the user as it is now, or takes it away.
//! - `ACL WHOAMI|LIST|USERS|GETUSER` read [`User::name`], [`Acl::users`] and the user's text, which is a line of the file.
//!   `ACL SETUSER|DELUSER` change a clone of [`Authority::acl`], which `ACL LOAD` reads anew, and give it to
//!   [`Authority::replace`]; `ACL SAVE` writes the clone's text. `ACL CAT` reads [`Categories::NAMES`].

#![forbid(unsafe_code)]

mod acl;
mod authority;
mod keys;
mod secret;
mod table;
#[cfg(test)]
mod tests;
mod user;

pub use acl::{Acl, AclError};
pub use authority::{Authority, Credentials, Login};
pub use keys::Access;
pub use secret::{PASSWORD_BYTES_MAX, hash};
pub use table::{COMMANDS_MAX, Categories, Entry, Tables};
pub use user::{RuleError, User};
