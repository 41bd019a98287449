//! The Minos policy: size histogram, threshold, core split and size ranges. Pure: no sockets, no clock.

#![forbid(unsafe_code)]
