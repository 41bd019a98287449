//! Popularity, sizes, arrivals, the open-loop driver and latency histograms.

#![forbid(unsafe_code)]
