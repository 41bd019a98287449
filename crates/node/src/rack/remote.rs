//! Reads of items in the memory of other nodes.

use minos_base::SizeClass;
use minos_engine::{Answer, Get, ItemView, Mode, StagedOwned};

use super::owners::{Owner, shifted};
use crate::ops::{Context, Facts};

/// The result of a read in another node's memory.
pub(crate) enum Remote {
    /// There is no such item.
    Missing,
    /// The reply is in the transmit buffer; the value is of this class.
    Copied(SizeClass),
    /// Only the owner can answer.
    AskOwner,
}

/// Lets `compose` write the reply for an item of another node; it may run more than once, and answers `false` if the
/// owner is to be asked instead.
pub(crate) fn read<M: Mode, P>(
    cx: &Context<'_, M, P>,
    (owner, staged): (Owner, Option<StagedOwned<'_>>),
    get: &Get<'_>,
    tx: &mut Vec<u8>,
    compose: impl Fn(&Facts, &ItemView<'_>, &mut Vec<u8>) -> bool,
) -> Remote {
    let Some(rack) = cx.rack else { unreachable!("without a rack no key is elsewhere") };
    let start = tx.len();
    let staged = staged.or_else(|| rack.stage(owner, get.hash));
    let read = |staged| {
        rack.read((owner, &staged), get, cx.now, |item, ahead_s| {
            // An earlier attempt may have left bytes of an item that changed meanwhile.
            tx.truncate(start);
            let mut facts = Facts::from(&**item);
            if facts.expiry != 0 {
                facts.expiry = shifted(facts.expiry, -ahead_s);
            }
            compose(&facts, item, tx).then(|| SizeClass::of(facts.value_bytes))
        })
    };
    let answer = staged.map_or(Answer::AskOwner, read);
    let counters = &rack.counters;
    match answer {
        Answer::Found(Some(class)) => {
            counters.remote_reads.count();
            counters.remote_hits.count();
            return Remote::Copied(class);
        }
        Answer::Missing => {
            counters.remote_reads.count();
            tx.truncate(start);
            return Remote::Missing;
        }
        Answer::Found(None) | Answer::AskOwner => {}
    }
    tx.truncate(start);
    // Otherwise it is known later whether the owner is asked.
    if !rack.is_afar(owner.node) {
        counters.remote_asked.count();
    }
    Remote::AskOwner
}
