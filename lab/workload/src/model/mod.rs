//! Items, their sizes and contents, and the order of requests.

mod dataset;
mod files;
mod key;
mod named;
mod ops;
mod picker;
mod source;
mod spec;
mod trace;
mod value;
mod workload;
mod zipf;

pub use named::{Shape, named_workloads};
pub use ops::Ops;
pub use source::{Op, OpKind};
pub use spec::{Class, GroupSpec, Popularity, SizeRange, StreamSpec, WorkloadSpec, Writes};
pub use workload::{LARGE_THRESHOLD_DEFAULT, ValueSizes, Workload, WorkloadError};

pub(crate) use dataset::Dataset;
pub(crate) use source::OpSource;
pub(crate) use value::{Body, Check};

/// Spreads the bits of `value` over all 64 (SplitMix64's finalizer): neighbours come out unrelated.
pub(crate) const fn mix(value: u64) -> u64 {
    let mut bits = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
