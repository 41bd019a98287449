//! Error texts, and panics, which must not cross the boundary.

use std::{
    cell::RefCell,
    ffi::{CString, c_char},
    panic::{AssertUnwindSafe, catch_unwind},
};

use minos_client::Error;

use crate::Status;

thread_local! {
    /// The text of the last call of this thread that failed.
    static TEXT: RefCell<CString> = RefCell::default();
}

/// The reason of a failed call.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An error of the client.
    Client(Error),
    /// This argument is NULL, or not UTF-8.
    Argument(&'static str),
    /// Too many operations have not ended.
    Full,
    /// A call with this client panicked before.
    Broken,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Client(error)
    }
}

impl Failure {
    /// Stores the text for this thread, and returns the status.
    pub(crate) fn note(&self) -> Status {
        match self {
            Self::Client(error) => note(Status::from(error), error.to_string()),
            Self::Argument(name) => {
                note(Status::Argument, format!("the argument {name} is NULL, no UTF-8, or not known"))
            }
            Self::Full => note(Status::Full, "as many operations as may be have not ended".to_owned()),
            Self::Broken => note(Status::Panic, "an earlier call with this client failed".to_owned()),
        }
    }
}

fn note(status: Status, text: String) -> Status {
    // A server's name could contain a zero byte, which would end the text.
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    TEXT.with_borrow_mut(|last| *last = text);
    status
}

/// Runs the body of a call: errors and panics become a status and a text.
pub(crate) fn guarded(body: impl FnOnce() -> Result<Status, Failure>) -> Status {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(status)) => status,
        Ok(Err(failure)) => failure.note(),
        Err(_) => note(Status::Panic, "the library panicked: this is a defect".to_owned()),
    }
}

/// The error text of the last call of this thread that failed; empty before that. Valid until the next call
/// of this thread.
#[unsafe(no_mangle)]
pub extern "C" fn minos_error_text() -> *const c_char {
    TEXT.with_borrow(|text| text.as_ptr())
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn text() -> String {
        TEXT.with_borrow(|text| text.to_string_lossy().into_owned())
    }

    #[test]
    fn a_panic_becomes_a_status() {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        assert_eq!(guarded(|| panic!("on purpose")), Status::Panic);
        std::panic::set_hook(hook);
        assert!(text().contains("defect"));
    }

    #[test]
    fn errors_are_told_in_words() {
        assert_eq!(guarded(|| Err(Error::NoMemory.into())), Status::NoMemory);
        assert_eq!(text(), Error::NoMemory.to_string());
        // SAFETY: the text is a C string, and nothing is called in between.
        let seen = unsafe { CStr::from_ptr(minos_error_text()) };
        assert_eq!(seen.to_str(), Ok(text().as_str()));
        assert_eq!(guarded(|| Ok(Status::NotFound)), Status::NotFound);
        assert_eq!(text(), Error::NoMemory.to_string());
    }
}
