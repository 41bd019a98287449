//! Compares replies with the requests.

use std::collections::VecDeque;

use minos_proto::client::ReplySink;

use crate::model::{Check, Dataset};

/// The items requested on a connection, and the check of the values in its replies.
pub(super) struct Checker<'a> {
    dataset: &'a Dataset,
    /// True if every byte is compared, not just lengths.
    contents: bool,
    /// Items asked for and not answered, oldest first.
    items: VecDeque<u64>,
    /// Items of the reply that is coming in; the first ones of `items`.
    reply_items: usize,
    /// Position in the reply's items after the last value.
    cursor: usize,
    check: Check,
    is_wrong: bool,
    key: Vec<u8>,
}

impl<'a> Checker<'a> {
    pub(super) fn new(dataset: &'a Dataset, contents: bool) -> Self {
        Self {
            dataset,
            contents,
            items: VecDeque::new(),
            reply_items: 0,
            cursor: 0,
            check: Check::Nothing,
            is_wrong: false,
            key: Vec::new(),
        }
    }

    /// An item has been asked for.
    pub(super) fn expect(&mut self, item: u64) {
        self.items.push_back(item);
    }

    /// The next reply answers the first `items` of the expected items.
    pub(super) fn begin_reply(&mut self, items: usize) {
        self.reply_items = items;
    }

    /// True if the bytes of the current value are compared.
    pub(super) fn needs_bytes(&self) -> bool {
        self.check.needs_bytes()
    }

    /// Ends the reply. Returns true if everything in it was right.
    pub(super) fn end_reply(&mut self) -> bool {
        self.end_value();
        self.items.drain(..self.reply_items.min(self.items.len()));
        (self.reply_items, self.cursor) = (0, 0);
        !std::mem::take(&mut self.is_wrong)
    }

    fn end_value(&mut self) {
        let check = std::mem::replace(&mut self.check, Check::Nothing);
        self.is_wrong |= !check.is_right();
    }

    /// The position of `key` in the reply's items; missing keys are skipped.
    fn position_of(&mut self, key: &[u8]) -> Option<usize> {
        (self.cursor..self.reply_items).find(|&position| {
            self.key.clear();
            self.dataset.write_key(self.items[position], &mut self.key);
            self.key == key
        })
    }
}

impl ReplySink for Checker<'_> {
    fn value(&mut self, key: Option<&[u8]>, position: u32, value_bytes: u64) {
        self.end_value();
        let position = match key {
            Some(key) => self.position_of(key),
            None => Some(position as usize).filter(|&position| position < self.reply_items),
        };
        let Some(position) = position else {
            self.is_wrong = true;
            return;
        };
        self.cursor = position + 1;
        self.check = self.dataset.check(self.items[position], self.contents);
        if !self.check.is_length(value_bytes) {
            self.is_wrong = true;
            self.check = Check::Nothing;
        }
    }

    fn bytes(&mut self, part: &[u8]) {
        self.check.update(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Shape, Workload};

    fn workload() -> Workload {
        Workload::open("etc", &Shape { keys: Some(100), ..Shape::default() }, 1).unwrap()
    }

    fn key_and_value(workload: &Workload, item: u64) -> (Vec<u8>, Vec<u8>) {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        workload.dataset.write_key(item, &mut key);
        workload.dataset.body(item).unwrap().append_to(&mut value);
        (key, value)
    }

    /// Answers a multi-get for `asked` with the values of `answered`, the first one changed by `change`.
    fn is_right(asked: &[u64], answered: &[u64], change: impl Fn(&mut Vec<u8>)) -> bool {
        let workload = workload();
        let mut checker = Checker::new(&workload.dataset, true);
        asked.iter().for_each(|&item| checker.expect(item));
        checker.begin_reply(asked.len());
        for (index, &item) in answered.iter().enumerate() {
            let (key, mut value) = key_and_value(&workload, item);
            if index == 0 {
                change(&mut value);
            }
            checker.value(Some(&key), index as u32, value.len() as u64);
            checker.bytes(&value);
        }
        checker.end_reply()
    }

    #[test]
    fn right_replies_pass_with_missing_and_repeated_keys() {
        for answered in [&[5, 60, 5][..], &[60][..], &[5, 5][..], &[][..]] {
            assert!(is_right(&[5, 60, 5], answered, |_| {}), "{answered:?}");
        }
    }

    #[test]
    fn wrong_replies_are_seen() {
        assert!(!is_right(&[5, 60], &[60, 5], |_| {}), "order");
        assert!(!is_right(&[5], &[6], |_| {}), "another key");
        assert!(!is_right(&[60], &[60], |value| value[3] ^= 1), "contents");
        assert!(!is_right(&[60], &[60], |value| value.push(0)), "length");
    }
}
