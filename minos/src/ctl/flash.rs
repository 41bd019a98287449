//! The options of `minos ctl flash`.

use clap::Args;
use serde_json::{Map, Value};

use crate::rate::parse_rate;

/// What is to change.
#[derive(Args, Clone, Debug)]
pub(super) struct FlashArgs {
    /// Read and verify every sealed segment once now, so many bytes a second
    #[arg(long, value_name = "SIZE", value_parser = parse_rate)]
    scrub: Option<u64>,
    /// Bytes a second that the scrubber reads otherwise; 0: none
    #[arg(long, value_name = "SIZE", value_parser = parse_rate)]
    scrub_rate: Option<u64>,
    /// Bytes a second that compaction reads to move, unless segments run out; 0: none
    #[arg(long, value_name = "SIZE", value_parser = parse_rate)]
    compaction_rate: Option<u64>,
}

impl FlashArgs {
    /// The body of the request, if there is anything to change.
    pub(super) fn change(&self) -> Option<String> {
        let Self { scrub, scrub_rate, compaction_rate } = *self;
        let all = [("scrub", scrub), ("scrub_rate", scrub_rate), ("compaction_rate", compaction_rate)];
        let given = all.into_iter().filter_map(|(name, rate)| Some((name.to_owned(), rate?.into())));
        let object: Map<String, Value> = given.collect();
        (!object.is_empty()).then(|| Value::Object(object).to_string())
    }
}
