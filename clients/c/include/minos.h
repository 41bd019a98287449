/*
 * Client of Minos, a size-aware sharded key-value store.
 *
 * Link with -lminos. A minos_client is one socket that the calling thread drives: it has no threads of its own.
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
    /* A pointer is NULL that must not be, or a text is no UTF-8. */
    MINOS_ARGUMENT = -18,
    /* The library failed, which is a defect of it. The client can only be closed. */
    MINOS_PANIC = -19,
    /* An error that has no name here. */
    MINOS_OTHER = -20
} minos_status;

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
 * options may be NULL. *client becomes NULL where it fails.
 */
minos_status minos_connect(const char *address, const minos_options *options, minos_client **client);

/* NULL is let be. */
void minos_close(minos_client *client);

/* How long the server takes to answer, in nanoseconds; round_trip_ns may be NULL. */
minos_status minos_ping(minos_client *client, uint64_t *round_trip_ns);

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

#ifdef __cplusplus
}
#endif

#endif
