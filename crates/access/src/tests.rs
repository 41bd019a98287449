//! Files, rules and passwords.

use std::{
    sync::{Arc, OnceLock},
    thread,
};

use proptest::{collection::vec, prelude::*, test_runner::TestRunner};

use super::{authority::checks_left, *};

const GET: usize = 0;
const SET: usize = 1;
const FLUSH: usize = 2;
const STATS: usize = 3;

const ONE: &[Entry] = &[
    Entry { name: "get", categories: Categories::READ.with(Categories::FAST) },
    Entry { name: "set", categories: Categories::WRITE },
    Entry { name: "flush_all", categories: Categories::WRITE.with(Categories::DANGEROUS) },
    Entry { name: "stats", categories: Categories::ADMIN.with(Categories::DANGEROUS) },
];
const OTHER: &[Entry] = &[
    Entry { name: "strlen", categories: Categories::READ },
    ONE[GET],
    Entry { name: "acl", categories: Categories::ADMIN },
    Entry { name: "acl|setuser", categories: Categories::ADMIN.with(Categories::DANGEROUS) },
    Entry { name: "aclx", categories: Categories::ADMIN },
];
const TABLES: Tables = &[ONE, OTHER];

fn acl(text: &str) -> Acl {
    Acl::parse(text, TABLES).unwrap_or_else(|error| panic!("{error}"))
}

fn user(rules: &str) -> Arc<User> {
    Arc::clone(acl(&format!("user u {rules}")).user(b"u").unwrap())
}

fn error(text: &str) -> String {
    Acl::parse(text, TABLES).unwrap_err().to_string()
}

/// A hash of "secret", with the lowest costs.
const CHEAP: &str = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$";

/// `#` and the whole of it.
fn cheap() -> &'static str {
    static HASH: OnceLock<String> = OnceLock::new();
    HASH.get_or_init(|| {
        use argon2::{Algorithm, Argon2, Params, Version, password_hash::PasswordHasher};
        let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, Params::new(8, 1, 1, None).unwrap());
        format!("#{}", argon.hash_password(b"secret").unwrap())
    })
}

#[test]
fn later_rules_prevail() {
    let cases: [(&str, [bool; 4]); 9] = [
        ("", [false; 4]),
        ("+@all", [true; 4]),
        ("+@all -@dangerous", [true, true, false, false]),
        ("+@all -@dangerous +stats", [true, true, false, true]),
        ("+stats +@all -@dangerous", [true, true, false, false]),
        ("+@read", [true, false, false, false]),
        ("+@write -set", [false, false, true, false]),
        ("+get -@all +SET", [false, true, false, false]),
        ("allcommands nocommands +@ADMIN", [false, false, false, true]),
    ];
    for (rules, allowed) in cases {
        let user = user(rules);
        assert_eq!([GET, SET, FLUSH, STATS].map(|command| user.may_run(0, command)), allowed, "{rules}");
        // A name is the same command in every table.
        assert_eq!(user.may_run(1, 1), allowed[GET], "{rules}");
    }
    assert!(user("+strlen").may_run(1, 0) && !user("+strlen").may_run(0, 0));
    assert!(
        !user("+@all").may_run(2, 0) && !user("+@all").may_run(0, COMMANDS_MAX),
        "there is no such command"
    );
}

#[test]
fn a_command_stands_for_its_subcommands() {
    for (rules, allowed) in [
        ("+@all -acl", [false, false, true]),
        ("+acl", [true, true, false]),
        ("+acl -acl|setuser", [true, false, false]),
        ("+acl|setuser", [false, true, false]),
        ("+acl|setuser -acl", [false; 3]),
    ] {
        let user = user(rules);
        assert_eq!([2, 3, 4].map(|command| user.may_run(1, command)), allowed, "{rules}");
    }
}

#[test]
fn changes_at_the_same_time_are_all_made() {
    const CHANGES: usize = 200;
    let authority = Authority::new(acl("user u on"), [7; 32]);
    thread::scope(|scope| {
        for thread in 0..4 {
            let authority = &authority;
            scope.spawn(move || {
                for change in 0..CHANGES {
                    let name = format!("u{thread}-{change}");
                    authority.change(|acl| acl.set_user(&name, ["on"])).unwrap();
                }
            });
        }
    });
    assert_eq!(authority.acl().users().count(), 1 + 4 * CHANGES);
    let refused = authority.change(|acl| {
        acl.remove("u");
        acl.set_user("u", ["+nonsense"])
    });
    assert!(refused.is_err() && authority.acl().user(b"u").is_some(), "a part of it was done");
}

#[test]
fn keys_are_prefixes_or_whole() {
    let user = user("~a:* %R~b* %W~c %RW~d:* %R~e %W~e");
    let cases = [
        ("a:", [true, true]),
        ("a:1", [true, true]),
        ("a", [false, false]),
        ("b", [true, false]),
        ("bc", [true, false]),
        ("c", [false, true]),
        ("cc", [false, false]),
        ("d:x", [true, true]),
        ("e", [true, true]),
        ("", [false, false]),
        ("xa:", [false, false]),
    ];
    for (key, [reads, writes]) in cases {
        let seen = [Access::Any, Access::Read, Access::Write, Access::Both]
            .map(|access| user.may_access(key.as_bytes(), access));
        // One rule must allow both.
        let is_both = reads && writes && key != "e";
        assert_eq!(seen, [reads || writes, reads, writes, is_both], "{key}");
    }
    assert!(self::user("allkeys").may_access(b"\xff\0", Access::Both));
    assert!(!self::user("allkeys resetkeys").may_access(b"a", Access::Read));
}

/// In a file it would be read as other words, or as a line of its own.
#[test]
fn a_pattern_has_no_white_space_and_no_control_characters() {
    let mut users = acl("user u on");
    for pattern in ["a b", "a\tb*", "a\nuser evil on nopass +@all ~*", "a\r", "\u{b}", "a\0*", "\u{7f}"] {
        let error = users.set_user("u", [format!("~{pattern}").as_str()]).unwrap_err().to_string();
        assert!(error.ends_with(": a pattern has no white space and no control characters"), "{error}");
    }
    users.set_user("u", ["~\u{e9}\u{a0}*"]).unwrap();
    assert_eq!(Acl::parse(&users.to_string(), TABLES).unwrap().to_string(), users.to_string());
}

#[test]
fn errors_name_line_and_rule_but_no_secret() {
    let cases = [
        ("user a on\nuser b up", "line 2: up: there is no such rule"),
        ("\n# a remark\nalice on", "line 3: expected `user NAME RULES...`"),
        ("user", "line 1: a name is missing"),
        ("user a\nuser a", "line 2: the user a is there already"),
        ("user a +@scripting", "line 1: +@scripting: there is no such category"),
        ("user a +eval", "line 1: +eval: there is no such command"),
        ("user a ~a*b", "line 1: ~a*b: a pattern is a key, or a prefix and one * at its end"),
        ("user a ~", "line 1: ~: no key is empty"),
        ("user a %X~a", "line 1: %X~a: expected %R~, %W~ or %RW~ and a pattern"),
        ("user a &*", "line 1: &*: channels and selectors are not served"),
        ("user a >hunter2", "line 1: >...: a password itself has no place here"),
        ("user a #hunter2", "line 1: #...: expected an Argon2 hash"),
        ("user \u{e9}", "line 1: \u{e9}: a name has 1 to 64 visible ASCII characters"),
    ];
    for (text, expected) in cases {
        let error = error(text);
        assert!(error.starts_with(expected) && !error.contains("hunter2"), "{error}");
    }
    let sha = "5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8";
    assert!(error(&format!("user a #{sha}")).contains("too easily guessed"));
    let costly = CHEAP.replace("m=8", "m=4000000") + "MDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDA";
    assert!(error(&format!("user a #{costly}")).contains("the hash costs m=4000000"));
}

#[test]
fn a_user_prints_the_line_that_it_is_read_from() {
    let line = format!("user u on {} ~a:* %R~b +@all -@dangerous +stats", cheap());
    assert_eq!(acl(&line).to_string(), line.clone() + "\n");
    assert_eq!(user("+get +@all ~* ~*").to_string(), "user u off ~* +@all");
    let mut changed = acl(&line);
    assert_eq!(changed.set_user("u", ["resetkeys", "wrong"]).unwrap_err().rule, "wrong");
    assert_eq!(changed.to_string(), line.clone() + "\n", "no rule applies if one does not");
    changed.set_user("u", ["off", "nopass", "-stats"]).unwrap();
    changed.set_user("v", []).unwrap();
    assert_eq!(changed.to_string(), "user u off nopass ~a:* %R~b +@all -@dangerous -stats\nuser v off\n");
    assert!(changed.remove("u") && !changed.remove("u"));
}

fn login(authority: &Authority, name: &[u8], password: &[u8]) -> (bool, Option<Arc<User>>) {
    match authority.login(name, password) {
        Login::Granted(user) => (false, Some(user)),
        Login::Slow(credentials) => (true, authority.verify(&credentials)),
        Login::Refused => (false, None),
    }
}

#[test]
fn a_right_password_is_slow_once_and_a_wrong_one_always() {
    let text = format!("user a on {0} +get\nuser off off {0}\nuser open on nopass\nuser none on", cheap());
    let authority = Authority::new(acl(&text), [7; 32]);
    assert!(matches!(login(&authority, b"a", b"secret"), (true, Some(_))));
    let again = login(&authority, b"a", b"secret");
    assert!(matches!(again, (false, Some(_))), "{again:?}");
    for (name, password) in [(b"a", b"Secret"), (b"A", b"secret"), (b"a", b"secre\0")] {
        for _ in 0..2 {
            assert!(matches!(login(&authority, name, password), (true, None)));
        }
    }
    assert!(login(&authority, b"off", b"secret").1.is_none());
    assert!(login(&authority, b"none", b"").1.is_none());
    assert!(matches!(login(&authority, b"open", b"anything"), (false, Some(_))));
    assert!(matches!(authority.login(b"a", &[b'x'; PASSWORD_BYTES_MAX + 1]), Login::Refused));
    assert!(authority.nobody.is_some(), "unknown users take as long");
    // The name and the password are told apart.
    assert!(login(&authority, b"asec", b"ret").1.is_none());
}

/// The time does not tell who is a user.
#[test]
fn a_wrong_password_takes_as_many_checks_whoever_it_is_said_for() {
    let hashes = |ends: &str| {
        let hash = |end| format!(" #{CHEAP}MDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMD{end}");
        ends.chars().map(hash).collect::<String>()
    };
    let users =
        format!("user a on{}\nuser b off{}\nuser c on\nuser d on nopass", hashes("AEI"), hashes("AE"));
    let acl = acl(&users);
    let left = |name: &str| checks_left(&acl, acl.user(name.as_bytes()).map(|user| &**user));
    assert_eq!(["a", "b", "c", "nobody"].map(left), [0, 1, 3, 3]);
    assert_eq!(checks_left(&self::acl("user c on"), None), 1);
}

#[test]
fn other_users_take_effect_on_those_who_are_there() {
    let line = |rest: &str| format!("user a on {} {rest}\n", cheap());
    let authority = Authority::new(acl(&line("+get")), [7; 32]);
    let version = authority.version();
    let user = login(&authority, b"a", b"secret").1.unwrap();
    authority.replace(acl(&line("+set")));
    assert_ne!(authority.version(), version);
    let renewed = authority.renewed(&user).unwrap();
    assert!(renewed.may_run(0, SET) && !renewed.may_run(0, GET));
    assert!(login(&authority, b"a", b"secret").0, "it is checked anew");
    for text in [line("off"), "user a on".to_owned(), String::new()] {
        authority.replace(acl(&text));
        assert!(authority.renewed(&user).is_none(), "{text}");
    }
    // Nobody is let in by a password that a user without one never had.
    authority.replace(acl("user a on nopass"));
    let open = login(&authority, b"a", b"").1.unwrap();
    authority.replace(acl("user a on"));
    assert!(authority.renewed(&open).is_none());
    assert!(authority.default_user().is_none());
    authority.replace(acl("user default on nopass ~* +@read"));
    assert!(authority.default_user().is_some_and(|user| user.may_run(0, GET) && !user.may_run(0, SET)));
    authority.replace(acl("user default on"));
    assert!(authority.default_user().is_none());
}

#[test]
fn a_hash_is_that_of_its_password_alone() {
    let hash = hash(b"correct horse").unwrap();
    let authority = Authority::new(acl(&format!("user a on #{hash}")), [7; 32]);
    assert!(login(&authority, b"a", b"correct horse").1.is_some());
    assert!(login(&authority, b"a", b"correct horsf").1.is_none());
    assert!(crate::hash(&[b'x'; PASSWORD_BYTES_MAX + 1]).is_err());
}

#[test]
fn whatever_is_accepted_prints_what_is_read_as_the_same() {
    let words = [
        "user", "a", "b", "on", "off", "nopass", "reset", "~*", "~x:*", "%R~y", "+@all", "-@all", "+get",
        "-set", "+@read", "\n", "#", "~a*b",
    ];
    let text = vec(prop::sample::select(words.to_vec()), 0..40)
        .prop_map(|words| words.join(" ").replace("\n ", "\n"));
    TestRunner::default()
        .run(&(text, ".{0,200}"), |(text, any)| {
            let _ = Acl::parse(&any, TABLES);
            if let Ok(acl) = Acl::parse(&text, TABLES) {
                let again = Acl::parse(&acl.to_string(), TABLES).unwrap();
                prop_assert!(again.users().eq(acl.users()), "{}", acl);
            }
            Ok(())
        })
        .unwrap();
}
