//! The MICA store: partitions, cache-line buckets, optimistic reads, a lossless index that grows while serving.

#![forbid(unsafe_code)]
