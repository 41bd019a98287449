//! Recovery: from the journal and the footers to the records that count.

mod damage;
mod lengths;
mod machine;
mod newest;
mod scan;

pub use damage::Damage;
pub use machine::{Found, NotOurs, Recovered, Recovery, Step};
pub use newest::{Newest, Winners};
pub(crate) use scan::scan;
