/*
 * Client of Minos, a size-aware sharded key-value store.
 *
 * Link with -lminos, or with what `pkg-config --cflags --libs minos` says. A minos_client is one socket that the calling thread drives: it has no threads of its own.
 * It may move between threads, but two threads must not use one at the same time; give each a client of its own.
 *
 * Every call that can fail returns a minos_status: MINOS_OK; a positive number for what is no error (there is no
 * such item, a condition does not hold); a negative one for an error, about which minos_error_text says more.
 *
 * What the caller passes is lent for the time of the call. What the caller gets is said with each function:
 * clients are closed with minos_close, options freed with minos_options_free, values with minos_value_free.
 * Pointers must not be NULL unless it is said that they may; if one is, the call says MINOS_ARGUMENT. Keys and
 * values are bytes with a length and may hold any byte; where the length is 0 the pointer may be NULL.
 *
 * An exptime is what memcached calls so: 0 for never, up to 2592000 for seconds from now, above that seconds since
 * 1970, and below 0 for at once.
 */
#ifndef MINOS_H
#define MINOS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How a call ended. Numbers do not change; there may be more of them in later versions. */
typedef enum minos_status {
    MINOS_OK = 0,
    /* There is no such item. */
    MINOS_NOT_FOUND = 1,
    /* The item was stored by somebody else since. */
    MINOS_EXISTS = 2,
    /* The condition of the store does not hold. */
    MINOS_NOT_STORED = 3,
    /* No answer in time; what was asked for may have been done, or may still be. */
    MINOS_TIMED_OUT = -1,
    /* The server was started again, or forgot this client: it was executed once or not at all. */
    MINOS_OUTCOME_UNKNOWN = -2,
    /* The key has no bytes, or too many. */
    MINOS_KEY = -3,
    /* The value is larger than the server or this client takes. */
    MINOS_TOO_LARGE = -4,
    /* The server has no memory for the value. */
    MINOS_NO_MEMORY = -5,
    /* The item to count with holds no number. */
    MINOS_NOT_A_NUMBER = -6,
    /* The server met a bound on transfers or sessions all the time. */
    MINOS_BUSY = -7,
    /* The value changes faster than it can be fetched. */
    MINOS_UNSTABLE = -8,
    /* The server speaks another version of the protocol. */
    MINOS_VERSION = -9,
    /* The shared secret is missing or wrong. */
    MINOS_SECRET = -10,
    /* The server does not know the operation. */
    MINOS_UNSUPPORTED = -11,
    /* The server could not make sense of the operation. */
    MINOS_BAD_REQUEST = -12,
    /* The server answered what the protocol does not allow. */
    MINOS_PROTOCOL = -13,
    /* An option has a value that cannot be. */
    MINOS_OPTION = -14,
    /* The address cannot be read, or names no host. */
    MINOS_ADDRESS = -15,
    /* The socket failed. */
    MINOS_IO = -16,
    /* The client has ended. */
    MINOS_CLOSED = -17,
    /* A pointer is NULL that must not be, a text is no UTF-8, or a verb is none. */
    MINOS_ARGUMENT = -18,
    /* The library failed, which is a defect of it. The client can only be closed. */
    MINOS_PANIC = -19,
    /* An error that has no name here. */
    MINOS_OTHER = -20,
    /* As many operations as may be have not ended. */
    MINOS_FULL = -21
} minos_status;

/* The library's version, "MAJOR.MINOR.PATCH", valid for ever. Its soname has the major one. */
const char *minos_version(void);

/* A few words about a status, valid for ever. */
const char *minos_status_text(int status);

/* What went wrong in the last call of this thread that failed; empty before that. Valid until the next call. */
const char *minos_error_text(void);

/* ---- Options ---- */

typedef struct minos_options minos_options;

/* Options with all defaults. Never NULL. */
minos_options *minos_options_new(void);

/* NULL is let be. Clients that were made with them go on. */
void minos_options_free(minos_options *options);

/* How long an operation may take, retries included; for a large value, how long it may stand still. Default 2000. */
minos_status minos_options_timeout_ms(minos_options *options, uint64_t timeout_ms);

/* A secret shared with the server, as `minos secret` prints it: datagrams carry a tag then. Nothing is encrypted.
   Default none. */
minos_status minos_options_secret(minos_options *options, const void *secret, size_t length);

/* Largest value to accept. Default 64 MiB. */
minos_status minos_options_value_bytes_max(minos_options *options, uint64_t value_bytes);

/* Largest datagram, 512 to 65507 bytes. Default 8192, or what the path carries. */
minos_status minos_options_datagram_bytes_max(minos_options *options, size_t bytes);

/* Datagrams that may be unanswered at once, at least 1. Default 64. */
minos_status minos_options_in_flight_max(minos_options *options, size_t datagrams);

/*
 * Whether the server is to execute everything that writes exactly once, and not only what a second execution would
 * make wrong (add, append, prepend, compare and swap, delete, incr, decr). Default false.
 */
minos_status minos_options_all_writes_once(minos_options *options, bool all_writes);

/* ---- Clients ---- */

typedef struct minos_client minos_client;

/*
 * Makes a client of the server at "minos://HOST:PORT" or "HOST:PORT", which must answer within the time-out.
 * Several addresses, with commas between them, name servers of the same items, or caches that stand in for each other:
 * when one is stopping or silent, the client goes to the next.
 * options may be NULL. *client becomes NULL where it fails.
 */
minos_status minos_connect(const char *address, const minos_options *options, minos_client **client);

/* As minos_connect, but nothing is sent, and so nothing is waited for but the name of a host. */
minos_status minos_open(const char *address, const minos_options *options, minos_client **client);

/* NULL is let be. What was started and has not ended is forgotten; the server may execute it or not. */
void minos_close(minos_client *client);

/* How long the server takes to answer, in nanoseconds; round_trip_ns may be NULL. */
minos_status minos_ping(minos_client *client, uint64_t *round_trip_ns);

/* How long each call and operation may take from now on, in milliseconds; 0 is what the options said. */
minos_status minos_timeout_ms(minos_client *client, uint64_t timeout_ms);

/*
 * What was counted since the client was made: "submitted", "completed", "datagrams_sent", "datagrams_received", "lost",
 * "restarts", "drains" (times that a server said that it is stopping), "failovers" (times that the client went to another
 * server) and more. MINOS_NOT_FOUND if there is no counter of that name.
 */
minos_status minos_counter(minos_client *client, const char *name, uint64_t *count);

/* ---- Values ---- */

/* A value that the caller got, to be given back with minos_value_free. */
typedef struct minos_value {
    /* NULL if there are none. No zero byte stands behind them. */
    uint8_t *bytes;
    size_t length;
    /* What the client that stored it keeps with it. */
    uint32_t flags;
    /* Changes with each store of the item. */
    uint64_t cas;
} minos_value;

/*
 * Gives the bytes back and makes the value empty. NULL and values that are empty, or all zero, are let be. Calls that
 * write a value do not look at what was there: free it first.
 */
void minos_value_free(minos_value *value);

/* Reads a value. MINOS_NOT_FOUND, and *value empty, if there is none. */
minos_status minos_get(minos_client *client, const void *key, size_t key_length, minos_value *value);

/* Reads a value and gives the item another expiry. */
minos_status minos_get_and_touch(minos_client *client, const void *key, size_t key_length, int32_t exptime,
                                 minos_value *value);

/* Stores a value. *cas, if cas is not NULL, becomes the item's CAS unique: here and below. */
minos_status minos_put(minos_client *client, const void *key, size_t key_length, const void *value,
                       size_t value_length, int32_t exptime, uint32_t flags, uint64_t *cas);

/* Stores a value if there is none: MINOS_NOT_STORED if there is one. */
minos_status minos_add(minos_client *client, const void *key, size_t key_length, const void *value,
                       size_t value_length, int32_t exptime, uint32_t flags, uint64_t *cas);

/* Stores a value if there is one already: MINOS_NOT_STORED if there is none. */
minos_status minos_replace(minos_client *client, const void *key, size_t key_length, const void *value,
                           size_t value_length, int32_t exptime, uint32_t flags, uint64_t *cas);

/* Stores a value if the item's CAS unique is still expected: MINOS_EXISTS if not, MINOS_NOT_FOUND if it is gone. */
minos_status minos_compare_and_swap(minos_client *client, const void *key, size_t key_length, const void *value,
                                    size_t value_length, uint64_t expected, int32_t exptime, uint32_t flags,
                                    uint64_t *cas);

/* Adds to the end of a value: MINOS_NOT_STORED if there is none. */
minos_status minos_append(minos_client *client, const void *key, size_t key_length, const void *end,
                          size_t end_length, uint64_t *cas);

/* Adds to the beginning of a value: MINOS_NOT_STORED if there is none. */
minos_status minos_prepend(minos_client *client, const void *key, size_t key_length, const void *beginning,
                           size_t beginning_length, uint64_t *cas);

/* MINOS_NOT_FOUND if there is no such item: here and below. */
minos_status minos_delete(minos_client *client, const void *key, size_t key_length);

/* Gives an item another expiry. */
minos_status minos_touch(minos_client *client, const void *key, size_t key_length, int32_t exptime);

/* Adds to a decimal number, modulo 2^64. *number, if number is not NULL, becomes the number: here and below. */
minos_status minos_incr(minos_client *client, const void *key, size_t key_length, uint64_t by, uint64_t *number);

/* Subtracts from a decimal number, at most down to 0. */
minos_status minos_decr(minos_client *client, const void *key, size_t key_length, uint64_t by, uint64_t *number);

/* Adds to a number, or makes it as initial where there is none. */
minos_status minos_incr_or_create(minos_client *client, const void *key, size_t key_length, uint64_t by,
                                  uint64_t initial, int32_t exptime, uint64_t *number);

/* Subtracts from a number, or makes it as initial where there is none. */
minos_status minos_decr_or_create(minos_client *client, const void *key, size_t key_length, uint64_t by,
                                  uint64_t initial, int32_t exptime, uint64_t *number);

/* Drops all items of the server, now if exptime is 0 or less, otherwise then. */
minos_status minos_flush_all(minos_client *client, int32_t exptime);

/* Lines "name value", each with its end, about the server: of group, or the general ones if that is NULL. */
minos_status minos_stats(minos_client *client, const char *group, minos_value *lines);

/* ---- Many operations at once, in as few datagrams as hold them ---- */

typedef struct minos_key {
    const void *bytes;
    size_t length;
} minos_key;

typedef struct minos_item {
    minos_key key;
    const void *value;
    size_t value_length;
} minos_item;

/*
 * Reads the values of count keys. values has room for count values, all of which are to be freed; statuses, if it is
 * not NULL, for as many statuses. What the call returns is the first error, or MINOS_OK even if keys are not found.
 * Where it returns MINOS_ARGUMENT or MINOS_PANIC, the statuses were not written.
 */
minos_status minos_get_many(minos_client *client, const minos_key *keys, size_t count, minos_value *values,
                            minos_status *statuses);

/* Stores count values. What it returns, and statuses, are as above. */
minos_status minos_put_many(minos_client *client, const minos_item *items, size_t count, int32_t exptime,
                            uint32_t flags, minos_status *statuses);

/* Deletes count items. What it returns, and statuses, are as above. */
minos_status minos_delete_many(minos_client *client, const minos_key *keys, size_t count, minos_status *statuses);

/* ---- Event loops: none of these functions waits ---- */

/* What can be started. Numbers do not change. */
typedef enum minos_verb {
    MINOS_VERB_GET = 1,
    MINOS_VERB_GET_AND_TOUCH = 2,
    MINOS_VERB_PUT = 3,
    MINOS_VERB_ADD = 4,
    MINOS_VERB_REPLACE = 5,
    MINOS_VERB_APPEND = 6,
    MINOS_VERB_PREPEND = 7,
    MINOS_VERB_COMPARE_AND_SWAP = 8,
    MINOS_VERB_DELETE = 9,
    MINOS_VERB_TOUCH = 10,
    MINOS_VERB_INCR = 11,
    MINOS_VERB_DECR = 12,
    MINOS_VERB_PING = 13,
    MINOS_VERB_FLUSH_ALL = 14
} minos_verb;

/* An operation to be started. What the verb does not need is zero. */
typedef struct minos_request {
    /* A minos_verb. */
    int verb;
    minos_key key;
    const void *value;
    size_t value_length;
    int32_t exptime;
    uint32_t flags;
    /* The CAS unique to compare with, or the number to count by. */
    uint64_t operand;
    /* The number that a counter is made with where there is none; NULL leaves it missing. */
    const uint64_t *initial;
    /* How long it may take, in milliseconds; 0 is what the client says. */
    uint64_t timeout_ms;
    /* Anything; given back with the completion. */
    void *context;
} minos_request;

/* An operation that has ended. */
typedef struct minos_completion {
    /* That of the request. */
    void *context;
    /* How it ended. About an error minos_error_text says more, until the next call. */
    minos_status status;
    /* What was read, to be given back with minos_value_free; otherwise empty. */
    minos_value value;
    /* The item's CAS unique, where there is one. */
    uint64_t cas;
    /* The number that was counted to. */
    uint64_t number;
} minos_completion;

/*
 * A loop starts operations, calls minos_step, and takes what has ended by minos_next until that says MINOS_NOT_FOUND. When
 * there is nothing more to start, or no room, it waits until minos_descriptor is readable or minos_wait_ms are over, to
 * begin again: examples/loop.c does so with poll(2). Operations that are started before one minos_step share datagrams. In which order
 * they are executed, and end, is not said. Calls that wait may be made as well; they leave what was started alone.
 */

/* Starts an operation; nothing is sent before minos_step. MINOS_FULL, and nothing is started, if 4096 have not ended. */
minos_status minos_start(minos_client *client, const minos_request *request);

/* Sends what there is to send and takes in what has arrived. An error means that the client can only be closed. */
minos_status minos_step(minos_client *client);

/*
 * Hands out an operation that has ended: MINOS_OK, also if the operation failed, or MINOS_NOT_FOUND if there is none.
 * *completion is only written where MINOS_OK is returned.
 */
minos_status minos_next(minos_client *client, minos_completion *completion);

/*
 * The socket, for poll, epoll and the like; to be watched for reading, and neither read nor closed. It stays the same
 * until minos_close. -1 if client is NULL.
 */
int minos_descriptor(const minos_client *client);

/*
 * How long to wait for the socket at most, in milliseconds, as poll(2) takes it: -1 if nothing is under way. Ask anew after
 * each minos_start and minos_step.
 */
int minos_wait_ms(const minos_client *client);

#ifdef __cplusplus
}
#endif

#endif
