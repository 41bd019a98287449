//! The result of a call.

use std::ffi::{CStr, c_char, c_int};

use minos_client::Error;

/// Declares the statuses in the order of the header, each with its number and a short text that fits every call.
macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $words:literal;)*) => {
        /// The result of a call: `minos_status` of the header.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(i32)]
        pub enum Status { $($(#[$doc])* $name = $number,)* }

        impl Status {
            pub(crate) const ALL: [Self; [$($number),*].len()] = [$(Self::$name),*];

            const fn words(self) -> &'static CStr {
                match self { $(Self::$name => $words,)* }
            }
        }
    };
}

statuses! {
    /// It was done.
    Ok = 0, c"done";
    /// There is no such item.
    NotFound = 1, c"there is no such item";
    /// The item was changed since its CAS unique was read.
    Exists = 2, c"the item was changed since";
    /// The condition of the store does not hold.
    NotStored = 3, c"the condition does not hold";
    /// No answer in time; the operation may have been executed.
    TimedOut = -1, c"no answer in time";
    /// The session was lost: the operation was executed once or not at all.
    OutcomeUnknown = -2, c"executed once or not at all";
    /// The key is empty or too long.
    Key = -3, c"the key is empty or too long";
    /// The value is too large.
    TooLarge = -4, c"the value is too large";
    /// The server has no memory for the value.
    NoMemory = -5, c"the server has no memory for the value";
    /// The item holds no number.
    NotANumber = -6, c"the value is no number";
    /// The server was at a limit all the time.
    Busy = -7, c"the server is busy";
    /// The value changes faster than it can be fetched.
    Unstable = -8, c"the value changes faster than it can be fetched";
    /// The server speaks another version.
    Version = -9, c"the server speaks another version of the protocol";
    /// The secret is missing or wrong.
    Secret = -10, c"the shared secret is missing or wrong";
    /// The server does not know the operation.
    Unsupported = -11, c"the server does not know the operation";
    /// The server did not understand the operation.
    BadRequest = -12, c"the server could not make sense of the operation";
    /// The server violated the protocol.
    Protocol = -13, c"the server answered against the protocol";
    /// An option has an invalid value.
    Option = -14, c"an option has a value that cannot be";
    /// The address cannot be used.
    Address = -15, c"the address cannot be used";
    /// The socket failed.
    Io = -16, c"the socket failed";
    /// The client has ended.
    Closed = -17, c"the client has ended";
    /// A pointer is NULL that must not be, a text is not UTF-8, or a number has no meaning.
    Argument = -18, c"an argument is NULL or no UTF-8";
    /// A defect of the library. The client can only be closed.
    Panic = -19, c"the library failed";
    /// An error that this version of the header does not name.
    Other = -20, c"another error";
    /// Too many operations have not ended.
    Full = -21, c"as many operations as may be have not ended";
}

impl From<&Error> for Status {
    fn from(error: &Error) -> Self {
        match error {
            Error::TimedOut { .. } => Self::TimedOut,
            Error::OutcomeUnknown => Self::OutcomeUnknown,
            Error::Key { .. } => Self::Key,
            Error::TooLarge { .. } => Self::TooLarge,
            Error::NoMemory => Self::NoMemory,
            Error::NotANumber => Self::NotANumber,
            Error::Busy => Self::Busy,
            Error::Unstable => Self::Unstable,
            Error::Version { .. } => Self::Version,
            Error::Secret => Self::Secret,
            Error::Unsupported => Self::Unsupported,
            Error::BadRequest => Self::BadRequest,
            Error::Protocol(_) => Self::Protocol,
            Error::Option(_) => Self::Option,
            Error::Address { .. } => Self::Address,
            Error::Io { .. } => Self::Io,
            Error::Closed => Self::Closed,
            _ => Self::Other,
        }
    }
}

/// A short text about a status, valid forever; for an unknown number, that of [`Status::Other`].
#[unsafe(no_mangle)]
pub extern "C" fn minos_status_text(status: c_int) -> *const c_char {
    let known = Status::ALL.into_iter().find(|known| *known as c_int == status);
    known.unwrap_or(Status::Other).words().as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_has_the_same_numbers() {
        let header = include_str!("../include/minos.h");
        let shown = |line: &str| -> Option<i32> {
            let (name, number) = line.trim().strip_prefix("MINOS_")?.split_once(" = ")?;
            // Verbs are numbered in the header too.
            let is_status = !name.starts_with("VERB_")
                && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
            number.split(',').next().filter(|_| is_status)?.parse().ok()
        };
        let shown: Vec<i32> = header.lines().filter_map(shown).collect();
        assert_eq!(shown, Status::ALL.map(|status| status as i32));
    }

    #[test]
    fn every_status_has_words_of_its_own() {
        let words: std::collections::BTreeSet<_> =
            Status::ALL.into_iter().map(|status| status.words()).collect();
        assert_eq!(words.len(), Status::ALL.len());
        assert_eq!(minos_status_text(-1000), Status::Other.words().as_ptr());
    }
}
