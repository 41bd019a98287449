//! An ACL file: whatever is accepted prints as a file that is read as the same users.

#![no_main]

use libfuzzer_sys::fuzz_target;
use minos_access::{Access, Acl, Categories, Entry};

const COMMANDS: &[Entry] = &[
    Entry { name: "get", categories: Categories::READ },
    Entry { name: "set", categories: Categories::WRITE },
];

fuzz_target!(|text: &str| {
    let Ok(acl) = Acl::parse(text, &[COMMANDS]) else { return };
    let again = Acl::parse(&acl.to_string(), &[COMMANDS]).expect("a file is printed");
    assert!(again.users().eq(acl.users()));
    for user in acl.users() {
        user.may_access(text.as_bytes(), Access::Both);
    }
});
