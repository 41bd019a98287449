//! What tests share: rival servers on free ports, a model map, a history checker.

#![forbid(unsafe_code)]
