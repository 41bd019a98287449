//! The worker loop that joins net, proto, sched and engine.

#![forbid(unsafe_code)]
