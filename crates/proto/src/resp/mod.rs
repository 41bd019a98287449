//! Redis' protocol, RESP, without I/O: commands and their parser, the table of commands, composers of replies.
//!
//! A client sends arrays of bulk strings, or lines of words for people. No argument is copied: each is a part of the
//! input. Replies are those of RESP2 until a client asks for RESP3 by `HELLO 3`.

mod command;
pub mod compose;
mod inline;
mod number;
mod parse;
mod table;

pub use command::{Arguments, Command};
pub use compose::Version;
pub use inline::rewrite_inline;
pub use number::{integer, unsigned};
pub use parse::{Begun, Head, Limits, Parsed, bulk_head, parse};
pub use table::{Flag, Group, Id, Keys, Spec, TABLE, find, find_subcommand, specs, subcommands};
