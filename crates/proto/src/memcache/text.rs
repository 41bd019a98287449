//! The texts of replies, line ends included, word for word memcached's.

macro_rules! texts {
    ($($name:ident = $text:literal, $meaning:literal;)*) => {
        $(#[doc = $meaning] pub const $name: &[u8] = concat!($text, "\r\n").as_bytes();)*
    };
}

/// No answer.
pub const NOTHING: &[u8] = b"";

/// The version of memcached whose protocol is spoken, and the version of this server.
pub const VERSION_NUMBER: &str = concat!("1.6.18-minos", env!("CARGO_PKG_VERSION"));

texts! {
    STORED = "STORED", "The value is stored.";
    NOT_STORED = "NOT_STORED", "The condition of the store did not hold.";
    EXISTS = "EXISTS", "The item is another one than the client has seen.";
    NOT_FOUND = "NOT_FOUND", "There is no such item.";
    DELETED = "DELETED", "The item is gone.";
    TOUCHED = "TOUCHED", "The item has its new expiry.";
    OK = "OK", "Done.";
    RESET = "RESET", "The counters are zero.";
    END = "END", "The end of values or counters.";
    LINE_END = "", "The end of a line or of a value.";
    VALUE_END = "\r\nEND", "The end of the last value.";
    META_NOOP = "MN", "The answer to a no-op.";
    META_MISS = "EN", "The answer to a meta request for an item that is not there.";

    ERROR = "ERROR", "No such command.";
    TOO_MANY_CONNECTIONS = "ERROR Too many open connections", "The server has as many clients as it may.";
    SHUTDOWN_DISABLED = "SERVER_ERROR: shutdown not enabled", "The shutdown command is off.";

    UNAUTHENTICATED = "CLIENT_ERROR unauthenticated", "The client has not said who it is.";
    AUTH_FAILURE = "CLIENT_ERROR authentication failure", "There is no such user, or the password is another.";
    BAD_TERMINATION = "CLIENT_ERROR bad command line termination", "A login does not end where it should.";
    TOO_MANY_LOGINS = "SERVER_ERROR too many logins are under way", "Passwords of others are checked first.";

    BAD_FORMAT = "CLIENT_ERROR bad command line format", "A word is missing or not what it should be.";
    BAD_COMMAND_LINE = "CLIENT_ERROR bad command line", "Words are missing.";
    BAD_DELETE = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]",
        "Words after the key of a delete.";
    BAD_CHUNK = "CLIENT_ERROR bad data chunk", "A value does not end where it should.";
    LINE_TOO_LONG = "CLIENT_ERROR line too long", "A line of keys is longer than the server allows.";
    INVALID_EXPTIME = "CLIENT_ERROR invalid exptime argument", "An expiry is no number.";
    INVALID_DELTA = "CLIENT_ERROR invalid numeric delta argument", "A difference is no number.";
    NON_NUMERIC = "CLIENT_ERROR cannot increment or decrement non-numeric value",
        "The value to count with is no number.";
    INVALID_SHUTDOWN = "CLIENT_ERROR invalid shutdown mode", "Words after shutdown.";
    STATS_DETAIL_USAGE = "CLIENT_ERROR usage: stats detail on|off|dump", "How to ask for counters by prefix.";
    ILLEGAL_SLAB = "CLIENT_ERROR Illegal slab id", "There is no such class.";
    WATCH_DISABLED = "CLIENT_ERROR watch commands not allowed", "Logs are not sent to clients.";
    BAD_CLASS = "BADCLASS invalid class id", "Items are listed of all classes only.";
    CRAWLER_DISABLED = "CLIENT_ERROR lru crawler disabled", "There is no crawler.";
    REASSIGN_DISABLED = "CLIENT_ERROR slab reassignment disabled", "There are no slabs.";

    MEMLIMIT_TOO_SMALL = "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m", "Too small a limit.";
    MEMLIMIT_NOT_MEGABYTES = "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes",
        "A limit that was meant in bytes.";
    MEMLIMIT_FIXED = "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust",
        "A running server has no more memory than it was started with.";

    TOO_LARGE = "SERVER_ERROR object too large for cache", "A value is larger than the server allows.";
    NO_MEMORY_STORING = "SERVER_ERROR out of memory storing object", "There is no room for a value.";
    NO_MEMORY = "SERVER_ERROR out of memory", "There is no room for a number that grew.";
    NO_MEMORY_FETCHING = "SERVER_ERROR out of memory reading flash", "There is no room for an item from flash.";
    FLASH_UNREADABLE = "SERVER_ERROR cannot read flash", "An item on flash cannot be read.";
    NO_MEMORY_VIVIFYING = "SERVER_ERROR Out of memory allocating new item",
        "There is no room for a number.";

    META_DUPLICATE_FLAG = "CLIENT_ERROR duplicate flag", "A meta flag stands twice.";
    META_INVALID_FLAG = "CLIENT_ERROR invalid flag", "There is no such meta flag.";
    META_INVALID_OR_DUPLICATE_FLAG = "CLIENT_ERROR invalid or duplicate flag",
        "Meta arithmetic says no more than this.";
    META_BAD_KEY = "CLIENT_ERROR error decoding key", "A key is no base64.";
    META_BAD_TOKEN = "CLIENT_ERROR bad token in command line format", "A meta flag's number is none.";
    META_BAD_INITIAL = "CLIENT_ERROR invalid numeric initial value", "A first value is no number.";
    META_BAD_DELTA = "CLIENT_ERROR invalid numeric delta value", "A difference is no number.";
    META_OPAQUE_TOO_LONG = "CLIENT_ERROR opaque token too long", "An opaque token is too long.";
    META_TOO_MANY_FLAGS = "CLIENT_ERROR options flags are too long", "Too many meta flags.";
    META_STORE_BAD_MODE = "CLIENT_ERROR invalid mode for ms M token", "There is no such way to store.";
    META_ARITHMETIC_BAD_MODE = "CLIENT_ERROR invalid mode for ma M token", "There is no such way to count.";
}
