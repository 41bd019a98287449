//! From reply statuses to outcomes.

use minos_proto::native::{ReplyRecord, Status};

use crate::{Error, Outcome, Value, Verb};

/// The outcome of an operation from its final record.
#[inline]
pub(super) fn outcome_of(
    verb: Verb,
    record: &ReplyRecord<'_>,
    value_bytes_max: u64,
) -> Result<Outcome, Error> {
    match record.status {
        Status::Ok => success_of(verb, record, value_bytes_max),
        Status::NotFound => Ok(Outcome::Missing),
        Status::Exists => Ok(Outcome::Exists),
        Status::NotStored => Ok(Outcome::NotStored),
        Status::NoMemory => Err(Error::NoMemory),
        // The server's limit stands in its directory, which is not known here.
        Status::TooLarge => Err(Error::TooLarge { bytes_max: value_bytes_max }),
        Status::NotANumber => Err(Error::NotANumber),
        Status::BadRequest => Err(Error::BadRequest),
        Status::Unsupported => Err(Error::Unsupported),
        Status::NotDurable => Err(Error::OutcomeUnknown),
        _ => Err(Error::Protocol("a status that is not known")),
    }
}

#[inline]
fn success_of(verb: Verb, record: &ReplyRecord<'_>, value_bytes_max: u64) -> Result<Outcome, Error> {
    let cas = record.cas;
    match verb {
        _ if verb.reads_value() && record.value.len() as u64 > value_bytes_max => {
            Err(Error::TooLarge { bytes_max: value_bytes_max })
        }
        Verb::Get | Verb::GetTouch => {
            Ok(Outcome::Value(Value { bytes: record.value.to_vec(), flags: record.item_flags, cas }))
        }
        Verb::Size => Ok(Outcome::Number { number: record.value.len() as u64, cas }),
        Verb::Incr | Verb::Decr => match <[u8; 8]>::try_from(record.value) {
            Ok(bytes) => Ok(Outcome::Number { number: u64::from_le_bytes(bytes), cas }),
            Err(_) => Err(Error::Protocol("a number that does not have 8 bytes")),
        },
        Verb::Stats => Ok(Outcome::Text(record.value.to_vec())),
        _ => Ok(Outcome::Done { cas }),
    }
}

#[cfg(test)]
mod tests {
    use minos_proto::native::Opcode;

    use super::*;

    fn record(status: Status, value: &[u8]) -> ReplyRecord<'_> {
        ReplyRecord { value, item_flags: 3, cas: 9, ..ReplyRecord::bare(Opcode::Get, status, 1) }
    }

    #[test]
    fn values_and_numbers_are_read() {
        let value = Value { bytes: b"12345678".to_vec(), flags: 3, cas: 9 };
        let found = record(Status::Ok, b"12345678");
        assert_eq!(outcome_of(Verb::Get, &found, 8), Ok(Outcome::Value(value)));
        assert_eq!(outcome_of(Verb::Get, &found, 7), Err(Error::TooLarge { bytes_max: 7 }));
        assert_eq!(outcome_of(Verb::Put, &found, 7), Ok(Outcome::Done { cas: 9 }));
        assert_eq!(outcome_of(Verb::Size, &found, 8), Ok(Outcome::Number { number: 8, cas: 9 }));
        let number = 258u64.to_le_bytes();
        let counted = record(Status::Ok, &number);
        assert_eq!(outcome_of(Verb::Incr, &counted, 7), Ok(Outcome::Number { number: 258, cas: 9 }));
        let short = record(Status::Ok, &number[1..]);
        assert!(matches!(outcome_of(Verb::Decr, &short, 7), Err(Error::Protocol(_))));
    }

    #[test]
    fn conditions_that_do_not_hold_are_no_errors() {
        for (status, outcome) in [
            (Status::NotFound, Outcome::Missing),
            (Status::Exists, Outcome::Exists),
            (Status::NotStored, Outcome::NotStored),
        ] {
            assert_eq!(outcome_of(Verb::Compare, &record(status, b""), 7), Ok(outcome));
        }
        assert_eq!(outcome_of(Verb::Put, &record(Status::NoMemory, b""), 7), Err(Error::NoMemory));
        assert_eq!(outcome_of(Verb::Put, &record(Status::NotDurable, b""), 7), Err(Error::OutcomeUnknown));
        assert!(outcome_of(Verb::Put, &record(Status::Unknown(99), b""), 7).is_err());
    }
}
