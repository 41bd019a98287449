//! The counters of a worker's own work; commands are counted elsewhere.

use crate::ops::counters::worker_counters;

worker_counters! {
    /// The counters of one worker's own work.
    Metrics, "":
    /// Nanoseconds in turns of the loop that found work. The kernel also counts the time in which the worker
    /// spins.
    busy_ns,
    /// Nanoseconds of `busy_ns` in which bytes of large requests were moved.
    large_ns,
    /// Turns of the loop, busy or not, that took longer than [`LONG_TURN`](minos_base::limits::LONG_TURN).
    long_turns,
    /// Polls of RX queues that found something.
    bursts,
    /// Connections served in these polls.
    visits,
    /// Visits to connections of another worker's RX queue.
    visits_elsewhere,
    /// Large requests handed to a worker's ring.
    handed_over,
    /// Connections handed to the worker that owns the partition of their next key, or for the value that it has.
    to_owner,
    /// Times that a full ring left a connection in its queue, or a large request with this worker.
    ring_full,
    /// Large requests taken from this worker's ring.
    large_taken,
    /// Connections and messages put into a ring that workers share.
    queued,
    /// Connections and messages that this worker took from shared rings.
    queued_taken,
    /// Those of `queued_taken` that came from another worker's ring.
    queued_taken_elsewhere,
    /// Messages dropped because a ring that workers share was full.
    queued_dropped,
    /// Times that this worker, otherwise idle, found work in RX queues or `lent` rings it helps with.
    helped,
    /// Connections served from another worker's `lent` ring.
    lent_taken,
    /// Large requests of other workers that this worker took while otherwise idle.
    relieved,
    /// Slices of large transfers served.
    slices,
    /// Large transfers completed.
    large_completed,
    /// Large transfers whose connection broke.
    large_broken,
    /// Large transfers given up because no byte had moved for too long.
    large_stalled,
    /// Large transfers given up because too few bytes had moved.
    large_slow,
    /// Large requests served to completion where they arrived.
    large_inline,
    /// Connections closed after the idle timeout.
    idle_closed,
    /// Connections closed because a request outgrew the buffer.
    buffer_overflows,
    /// Connections whose client speaks memcached's binary protocol.
    binary_connections,
    /// Times that replies waited until changes were durable.
    replies_held,
    /// Most bytes of replies kept for a connection whose client did not take them.
    kept_bytes_max,
    /// Expired or flushed items reclaimed in the background.
    reclaimed,
    /// Slices of the search for them, each in up to 256 chains of the index.
    sweeps,
    /// Trains of datagrams sent.
    native_trains_sent,
    /// Trains dropped, in part or in whole, because a buffer was full.
    native_trains_dropped,
    /// Trains not sent because their datagrams are longer than the path's MTU.
    native_trains_too_long,
    /// Trains not sent because the network reported that the client cannot be reached.
    native_trains_refused,
    /// Keys of requests for which this worker read flash.
    flash_keys,
    /// Those of `flash_keys` that came while the worker's role was small.
    flash_keys_small,
    /// Keys whose items were read from flash and answered without coming to memory.
    flash_keys_copied,
    /// Times that a plan gave the worker another role than it had.
    role_changes,
    /// Times the worker went to sleep.
    sleeps,
}
