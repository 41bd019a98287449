//! Protocol-neutral requests, replies and statuses.

#![forbid(unsafe_code)]
