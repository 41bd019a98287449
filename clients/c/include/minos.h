/*
 * Client of Minos, a size-aware sharded key-value store.
 *
 * Link with -lminos, or with the output of `pkg-config --cflags --libs minos`. A minos_client is one socket, driven by
 * the calling thread: it has no threads of its own. It may move between threads, but two threads must not use it at
 * the same time; give each thread its own client. After a fork only one of the processes may use a client.
 *
 * Every call that can fail returns a minos_status: MINOS_OK; a positive number for a negative result that is no error
 * (no such item, a condition that does not hold); a negative number for an error, described by minos_error_text.
 *
 * Arguments are lent for the time of the call. The caller owns results: close clients with minos_close, free options
 * with minos_options_free and values with minos_value_free. Pointers must not be NULL unless documented; otherwise
 * the call returns MINOS_ARGUMENT. Keys and values are bytes with a length and may hold any byte; if the length is 0,
 * the pointer may be NULL.
 *
 * An exptime has memcached's meaning: 0 is never, up to 2592000 seconds from now, above that seconds since 1970, and
 * below 0 immediately.
 */
#ifndef MINOS_H
#define MINOS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The result of a call. Numbers do not change; later versions may add some. */
typedef enum minos_status {
    MINOS_OK = 0,
    /* There is no such item. */
    MINOS_NOT_FOUND = 1,
    /* The item was changed since its CAS unique was read. */
    MINOS_EXISTS = 2,
    /* The condition of the store does not hold. */
    MINOS_NOT_STORED = 3,
    /* No answer in time; if the operation was sent, which minos_error_text says, it may have been executed, or may still
       be. */
    MINOS_TIMED_OUT = -1,
    /* The server restarted, lost this client's session, or could not keep the change, as its flash failed: the operation
       was executed once or not at all. */
    MINOS_OUTCOME_UNKNOWN = -2,
    /* The key is empty or too long. */
    MINOS_KEY = -3,
    /* The value is larger than the server or this client accepts. */
    MINOS_TOO_LARGE = -4,
    /* The server has no memory for the value. */
    MINOS_NO_MEMORY = -5,
    /* The item holds no number. */
    MINOS_NOT_A_NUMBER = -6,
    /* The server was at its limit of transfers or sessions all the time. */
    MINOS_BUSY = -7,
    /* The value changes faster than it can be fetched. */
    MINOS_UNSTABLE = -8,
    /* The server speaks another version of the protocol. */
    MINOS_VERSION = -9,
    /* The shared secret is missing or wrong. */
    MINOS_SECRET = -10,
    /* The server does not know the operation. */
    MINOS_UNSUPPORTED = -11,
    /* The server did not understand the operation. */
    MINOS_BAD_REQUEST = -12,
    /* The server violated the protocol. */
    MINOS_PROTOCOL = -13,
    /* An option has an invalid value. */
    MINOS_OPTION = -14,
    /* The address is invalid, or its host is unknown. */
    MINOS_ADDRESS = -15,
    /* The socket failed. */
    MINOS_IO = -16,
    /* The client has ended. */
    MINOS_CLOSED = -17,
    /* A pointer is NULL that must not be, a text is not UTF-8, or a verb is unknown. */
    MINOS_ARGUMENT = -18,
    /* A defect of the library. The client can only be closed. */
    MINOS_PANIC = -19,
    /* An error without a number of its own. */
    MINOS_OTHER = -20,
    /* Too many operations have not ended. */
    MINOS_FULL = -21
} minos_status;

/* The library's version, "MAJOR.MINOR.PATCH", valid forever. The soname contains the major version. */
const char *minos_version(void);

/* A short text about a status, valid forever. */
const char *minos_status_text(int status);

/* The error text of the last call of this thread that failed; empty before that. Valid until the next call. */
const char *minos_error_text(void);

/* ---- Options ---- */

typedef struct minos_options minos_options;

/* Options with all defaults. Never NULL. */
minos_options *minos_options_new(void);

/* NULL is ignored. Clients that were made with the options stay valid. */
void minos_options_free(minos_options *options);

/*
 * Time-out of an operation, retries included; for a large value, the longest time without progress, and for what waits for
 * room in a call for many, the longest time without an answer to any. Default 2000.
 */
minos_status minos_options_timeout_ms(minos_options *options, uint64_t timeout_ms);

/* A secret shared with the server, as `minos secret` prints it: datagrams then carry a tag. Nothing is encrypted.
   Default: none. */
minos_status minos_options_secret(minos_options *options, const void *secret, size_t length);

/* Largest value to accept. Default 64 MiB. */
minos_status minos_options_value_bytes_max(minos_options *options, uint64_t value_bytes);

/* Largest datagram, 512 to 65507 bytes. Default 8192, or less if the path requires it. */
minos_status minos_options_datagram_bytes_max(minos_options *options, size_t bytes);

/* Datagrams that may be unanswered at once, at least 1. Default 64. */
minos_status minos_options_in_flight_max(minos_options *options, size_t datagrams);

/*
 * Exactly-once execution for all writes, or only for those that must not be repeated (add, append, prepend, compare and
 * swap, delete, incr, decr, flush). Default true. With false, a put, replace or touch whose answer was lost or late may be
 * executed again after later, acknowledged writes of the same key, also of this client, and bring the older value back.
 */
minos_status minos_options_all_writes_once(minos_options *options, bool all_writes);

/*
 * The node of a rack's unit that gets a read: "weighted", as the rack balances it, "uniform", or "two-choices", the less
 * busy of two; or "copies", also nodes of other units, whose copies may be old by their --read-copies. Default "weighted".
 */
minos_status minos_options_reads(minos_options *options, const char *reads);

/* ---- Clients ---- */

typedef struct minos_client minos_client;

/*
 * Creates a client of the server at "minos://HOST:PORT" or "HOST:PORT", which must answer within the time-out.
 * Several addresses, separated by commas, name servers of the same items, or caches that replace each other:
 * when one is stopping or silent, the client goes to the next. Host names are resolved once, here; one that is not known
 * is left out while another is.
 * options may be NULL. On failure *client becomes NULL.
 */
minos_status minos_connect(const char *address, const minos_options *options, minos_client **client);

/* As minos_connect, but sends nothing: it only waits for the resolution of a host name. */
minos_status minos_open(const char *address, const minos_options *options, minos_client **client);

/* NULL is ignored. Started operations that have not ended are dropped; the server may execute them or not. */
void minos_close(minos_client *client);

/* Measures the time until the server answers, in nanoseconds; round_trip_ns may be NULL. */
minos_status minos_ping(minos_client *client, uint64_t *round_trip_ns);

/* Sets the time-out of later calls and operations, in milliseconds; 0 restores that of the options. */
minos_status minos_timeout_ms(minos_client *client, uint64_t timeout_ms);

/*
 * A counter since the creation of the client: "submitted", "completed", "datagrams_sent", "datagrams_received", "lost",
 * "restarts", "drains" (times that a server announced its stop), "failovers" (times that the client went to another
 * server) and more. MINOS_NOT_FOUND if there is no counter of that name.
 */
minos_status minos_counter(minos_client *client, const char *name, uint64_t *count);

/* ---- Values ---- */

/* A value that the caller owns; free it with minos_value_free. */
typedef struct minos_value {
    /* NULL if there are none. They are not followed by a zero byte. */
    uint8_t *bytes;
    size_t length;
    /* The flags stored with it. */
    uint32_t flags;
    /* Changes with each store of the item. */
    uint64_t cas;
} minos_value;

/*
 * Frees the bytes and makes the value empty. NULL, empty values and values that are all zero are ignored. Calls that
 * write a value overwrite the old one without freeing it: free it first.
 */
void minos_value_free(minos_value *value);

/* Reads a value. MINOS_NOT_FOUND, and *value empty, if there is none. */
minos_status minos_get(minos_client *client, const void *key, size_t key_length, minos_value *value);

/* Reads a value and changes the item's expiry. */
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

/* Appends to a value: MINOS_NOT_STORED if there is none. */
minos_status minos_append(minos_client *client, const void *key, size_t key_length, const void *end,
                          size_t end_length, uint64_t *cas);

/* Prepends to a value: MINOS_NOT_STORED if there is none. */
minos_status minos_prepend(minos_client *client, const void *key, size_t key_length, const void *beginning,
                           size_t beginning_length, uint64_t *cas);

/* MINOS_NOT_FOUND if there is no such item: here and below. */
minos_status minos_delete(minos_client *client, const void *key, size_t key_length);

/* Changes the expiry of an item. */
minos_status minos_touch(minos_client *client, const void *key, size_t key_length, int32_t exptime);

/* Adds to a decimal number, modulo 2^64. *number, if number is not NULL, becomes the result: here and below. */
minos_status minos_incr(minos_client *client, const void *key, size_t key_length, uint64_t by, uint64_t *number);

/* Subtracts from a decimal number, at most down to 0. */
minos_status minos_decr(minos_client *client, const void *key, size_t key_length, uint64_t by, uint64_t *number);

/* Adds to a number, or creates it as initial if there is none. */
minos_status minos_incr_or_create(minos_client *client, const void *key, size_t key_length, uint64_t by,
                                  uint64_t initial, int32_t exptime, uint64_t *number);

/* Subtracts from a number, or creates it as initial if there is none. */
minos_status minos_decr_or_create(minos_client *client, const void *key, size_t key_length, uint64_t by,
                                  uint64_t initial, int32_t exptime, uint64_t *number);

/* Drops all items of the server, now if exptime is 0 or less, otherwise at that time. */
minos_status minos_flush_all(minos_client *client, int32_t exptime);

/* The server's statistics of group, or the general ones if group is NULL: lines "name value", each with a line end. */
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
 * Reads the values of count keys. values has room for count values; the caller frees all of them, also after an error.
 * statuses, if it is not NULL, has room for as many statuses. Returns the first error, or MINOS_OK even if keys are not
 * found.
 * If it returns MINOS_ARGUMENT or MINOS_PANIC, the statuses were not written.
 */
minos_status minos_get_many(minos_client *client, const minos_key *keys, size_t count, minos_value *values,
                            minos_status *statuses);

/* Stores count values. The result and statuses are as above. */
minos_status minos_put_many(minos_client *client, const minos_item *items, size_t count, int32_t exptime,
                            uint32_t flags, minos_status *statuses);

/* Deletes count items. The result and statuses are as above. */
minos_status minos_delete_many(minos_client *client, const minos_key *keys, size_t count, minos_status *statuses);

/* ---- Event loops: none of these functions blocks ---- */

/* The operations that can be started. Numbers do not change. */
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

/* An operation to start. Fields that the verb does not need are zero. */
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
    /* The initial number of a missing counter; with NULL it stays missing. */
    const uint64_t *initial;
    /* The time-out in milliseconds; 0 is the client's. */
    uint64_t timeout_ms;
    /* Anything; returned with the completion. */
    void *context;
} minos_request;

/* An operation that has ended. */
typedef struct minos_completion {
    /* The context of the request. */
    void *context;
    /* The result. minos_error_text describes an error, until the next call. */
    minos_status status;
    /* The value that was read, to be freed with minos_value_free; otherwise empty. */
    minos_value value;
    /* The item's CAS unique, if any. */
    uint64_t cas;
    /* The new number. */
    uint64_t number;
} minos_completion;

/*
 * A loop starts operations, calls minos_step, and takes ended operations by minos_next until that returns
 * MINOS_NOT_FOUND. When there is nothing more to start, or no room, it waits until minos_descriptor is readable or
 * minos_wait_ms are over, and begins again: examples/loop.c does so with poll(2). Operations that are started before
 * the same minos_step share datagrams. The order in which they are executed, and end, is undefined. Blocking calls are
 * allowed as well; they do not affect started operations.
 */

/* Starts an operation; nothing is sent before minos_step. MINOS_FULL, and nothing is started, if 4096 have not ended. */
minos_status minos_start(minos_client *client, const minos_request *request);

/* Sends pending datagrams and processes those that arrived. After an error the client can only be closed. */
minos_status minos_step(minos_client *client);

/*
 * Returns an operation that has ended: MINOS_OK, also if the operation failed, or MINOS_NOT_FOUND if there is none.
 * *completion is written only if MINOS_OK is returned.
 */
minos_status minos_next(minos_client *client, minos_completion *completion);

/*
 * The socket, for poll, epoll and the like. Wait until it is readable, but do not read or close it. It stays the same
 * until minos_close. -1 if client is NULL.
 */
int minos_descriptor(const minos_client *client);

/*
 * The time to wait for the socket at most, in milliseconds, as for poll(2): -1 if no operation is under way. It changes
 * with each minos_start and minos_step.
 */
int minos_wait_ms(const minos_client *client);

#ifdef __cplusplus
}
#endif

#endif
