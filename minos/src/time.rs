//! Times as people write them on a command line.

pub(crate) use minos_node::settings::{parse_time, parse_time_or_never};
