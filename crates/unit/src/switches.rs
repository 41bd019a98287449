//! Safeguards that a test turns off to see its checks fail. A product build has none of these branches.

minos_base::safeguards! {
    /// A reader looks at the ownership word again after its read.
    SecondLook,
    /// A reader compares the bucket's version.
    Version,
    /// An answer leaves only under a lease.
    Lease,
    /// Writers past their check finish before changes are taken for the last time.
    PassOfLocks,
    /// An owner withdraws its word before it says that it has given a micro-shard away.
    Withdrawal,
    /// Changes during a copy are noted.
    Log,
    /// A restarted node owns under a higher epoch only.
    HigherEpoch,
    /// A restarted node's words are withdrawn before its memory is repaired.
    NoneFirst,
    /// Items of an earlier ownership are removed before the next.
    Emptying,
    /// A dead node's micro-shards wait for its readers.
    Fence,
    /// A memory is left that its owner has lost, before the owner's next one is written.
    Since,
    /// An owner waits for its followers before it acknowledges a change.
    Wait,
    /// A follower becomes the owner only once it is known that the owner waited for it.
    Safe,
    /// An owner gives a micro-shard to a follower only once that has taken in all changes.
    Drain,
    /// A copy that has come to nothing is dropped once its owner has said later that it has the items.
    Doubt,
    /// The other copies are kept until the next owner has said that it has the items.
    Keeping,
    /// An owner without a lease tells its followers nothing.
    FeedLease,
    /// A copy is read only as long as it is fresh.
    Freshness,
    /// A copy is read only while the directory names it.
    Listing,
}
