//! Users over Redis' protocol.

use std::{
    fs,
    path::{Path, PathBuf},
};

use minos_testkit::{Client, Server};
use rustix::process::{Pid, Signal, kill_process};

use super::{common, hash};

const NOAUTH: &str = "-NOAUTH Authentication required.";
const WRONGPASS: &str = "-WRONGPASS invalid username-password pair or user is disabled.";
const NO_KEY: &str = "-NOPERM this user has no permissions to access one of the keys used as arguments";
/// Longer than what a small worker takes from its buffer.
const LARGE_BYTES: usize = 3 << 20;

struct Rig {
    server: Server,
    folder: tempfile::TempDir,
}

impl Rig {
    fn start(users: &str) -> Self {
        Self::start_with(users, &[])
    }

    fn start_with(users: &str, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("users");
        std::fs::write(&file, users).unwrap();
        // A relative path, as people may give one.
        let acl = format!("--acl={}{}", "../".repeat(64), file.strip_prefix("/").unwrap().display());
        let arguments = |port: u16, _: &Path| {
            let resp = format!("--resp=127.0.0.1:{port}");
            let fixed =
                ["serve", "--memcached=127.0.0.1:0", &resp, &acl, "--workers=1", "--memory=64m", "--pin=off"];
            fixed.iter().chain(options).map(|&word| word.to_owned()).collect()
        };
        Self { server: Server::start(&common::program(), arguments).unwrap(), folder }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("users")
    }

    fn client(&self) -> Client {
        Client::connect(self.server.address()).unwrap()
    }

    fn user(&self, name: &str) -> Client {
        let mut client = self.client();
        assert_eq!(client.ask(&format!("AUTH {name} secret")).unwrap(), "+OK");
        client
    }
}

#[test]
fn redis_clients_must_say_who_they_are() {
    let rig = Rig::start(&format!(
        "user app on {0} ~* +@all\nuser default on {0} ~d:* +@read\nuser gone off {0} ~* +@all",
        hash()
    ));
    let mut client = rig.client();
    for line in ["GET a", "PING", "FLUSHALL", "MULTI", "CLIENT LIST", "ACL WHOAMI", "CONFIG GET *"] {
        assert_eq!(client.ask(line).unwrap(), NOAUTH, "{line}");
    }
    let refused = client.ask("HELLO 3").unwrap();
    assert!(refused.contains("otherwise the HELLO AUTH <user> <pass> option can"), "{refused}");
    for line in
        ["AUTH app Secret", "AUTH gone secret", "AUTH nobody secret", "AUTH Secret", "HELLO 3 AUTH app x"]
    {
        assert_eq!(client.ask(line).unwrap(), WRONGPASS, "{line}");
    }
    assert_eq!(client.ask("AUTH a b c").unwrap(), "-ERR syntax error");
    // Commands behind a login wait for it.
    client.send("AUTH app secret\r\nSET a 1\r\nGET a\r\nACL WHOAMI\r\n").unwrap();
    assert_eq!([(); 6].map(|()| client.line().unwrap()), ["+OK", "+OK", "$1", "1", "$3", "app"]);
    // A failed login leaves the user, RESET does not.
    assert_eq!(client.ask("AUTH app wrong").unwrap(), WRONGPASS);
    assert_eq!(client.ask("SET a 2").unwrap(), "+OK");
    assert_eq!(client.ask("RESET").unwrap(), "+RESET");
    assert_eq!(client.ask("GET a").unwrap(), NOAUTH);
    assert_eq!(client.ask("AUTH secret").unwrap(), "+OK");
    assert_eq!(client.ask("GET d:1").unwrap(), "$-1");
    assert_eq!(client.ask("GET a").unwrap(), NO_KEY);
    let mut third = rig.client();
    assert_eq!(third.ask("HELLO 3 AUTH app secret").unwrap(), "%7");
}

#[test]
fn connections_are_listed_and_killed_by_their_users() {
    let users = format!("user app on {0} ~* +@all\nuser reader on {0} ~* +@read", hash());
    let rig = Rig::start(&format!("{users}\nuser default on nopass ~* +@read"));
    let (mut nobody, mut readers) = (rig.client(), [(); 3].map(|()| rig.user("reader")));
    let mut client = rig.user("app");
    assert_eq!(nobody.ask("GET a").unwrap(), "$-1");
    let mut users_of = |connections: usize| {
        client.send("CLIENT LIST\r\n").unwrap();
        let lines: Vec<_> = (0..=connections + 1).map(|_| client.line().unwrap()).collect();
        let user = |line: &String| Some(line.split_once(" user=")?.1.split(' ').next()?.to_owned());
        lines.iter().filter_map(user).collect::<Vec<_>>()
    };
    assert_eq!(users_of(5), ["default", "reader", "reader", "reader", "app"]);
    let mut client = rig.user("app");
    for (line, answer) in [
        ("CLIENT KILL USER nobody", "-ERR No such user 'nobody'"),
        ("CLIENT KILL USER app", ":1"),
        ("CLIENT KILL USER reader TYPE pubsub", ":0"),
        ("CLIENT KILL USER reader", ":3"),
        ("ACL DELUSER reader", ":1"),
        ("CLIENT KILL USER reader", "-ERR No such user 'reader'"),
    ] {
        assert_eq!(client.ask(line).unwrap(), answer, "{line}");
    }
    assert!(readers.iter_mut().all(|reader| reader.rest().unwrap().is_empty()));
    assert_eq!(nobody.ask("GET a").unwrap(), "$-1", "the control");
    // RESET makes a connection one of the default user again.
    assert_eq!(client.ask("RESET").unwrap(), "+RESET");
    let mut operator = rig.user("app");
    assert_eq!(operator.ask("CLIENT KILL USER default").unwrap(), ":2");
    assert!(client.rest().unwrap().is_empty());
}

/// What a client may send before it has said who it is, is bounded as in Redis.
#[test]
fn strangers_send_little() {
    let rig = Rig::start(&format!("user app on {} ~* +@all", hash()));
    let mut client = rig.client();
    client.send("*2\r\n$3\r\nGET\r\n$20000\r\n").unwrap();
    assert_eq!(client.line().unwrap(), "-ERR Protocol error: invalid bulk length");
    assert_eq!(client.rest().unwrap(), b"");
    let mut client = rig.user("app");
    client.send(format!("*3\r\n$3\r\nSET\r\n$1\r\na\r\n${LARGE_BYTES}\r\n")).unwrap();
    client.send(vec![b'x'; LARGE_BYTES]).unwrap();
    client.send("\r\n").unwrap();
    assert_eq!(client.line().unwrap(), "+OK", "the control");
    // What follows a login in one burst is no stranger's, with a password that is checked first or that is known.
    for _ in 0..2 {
        let (mut client, value) = (rig.client(), "x".repeat(20_000));
        let login = "*3\r\n$4\r\nAUTH\r\n$3\r\napp\r\n$6\r\nsecret\r\n";
        client
            .send(format!("{login}*3\r\n$3\r\nSET\r\n$1\r\na\r\n$20000\r\n{value}\r\nSTRLEN a\r\n"))
            .unwrap();
        assert_eq!([(); 3].map(|()| client.line().unwrap()), ["+OK", "+OK", ":20000"]);
    }
}

/// Commands, and the users who may use them.
const RIGHTS: &[(&str, &[&str])] = &[
    ("GET a:1", &["reader", "half", "all"]),
    ("GET c:1", &["reader", "all"]),
    ("MGET a:1 b:1", &["reader", "half", "all"]),
    ("MGET a:1 c:1", &["reader", "all"]),
    ("STRLEN a:1", &["reader", "half", "all"]),
    ("TTL a:1", &["reader", "half", "all"]),
    ("EXISTS b:1", &["reader", "half", "all"]),
    ("SET a:1 x", &["writer", "all"]),
    ("SET a:1 x GET", &["all"]),
    ("SET b:1 x", &["half", "all"]),
    ("SET b:1 x GET", &["half", "all"]),
    ("SET c:1 x", &["all"]),
    ("MSET a:1 x a:2 y", &["writer", "all"]),
    ("MSET b:1 x c:2 y", &["all"]),
    ("APPEND b:1 x", &["half", "all"]),
    ("APPEND a:1 x", &["writer", "all"]),
    ("INCR a:1", &["all"]),
    ("COPY a:1 b:1", &["half", "all"]),
    ("COPY b:1 a:1", &["all"]),
    ("DEL a:1", &["writer", "all"]),
    ("EXPIRE b:1 100", &["half", "all"]),
    ("RENAME b:1 b:1", &["half", "all"]),
    ("RENAME b:1 c:1", &["all"]),
    ("WATCH b:1", &["half", "all"]),
    ("KEYS none", &["reader", "all"]),
    ("DBSIZE", &["reader", "half", "all"]),
    ("FLUSHALL", &["all"]),
    ("CONFIG GET none", &["operator", "all"]),
    ("CLIENT LIST", &["operator", "all"]),
    ("ACL LIST", &["operator", "all"]),
    ("INFO", &["all"]),
    ("PING", &["reader", "writer", "half", "operator", "all"]),
];

#[test]
fn users_of_redis_have_their_rights_and_no_others() {
    let users = [
        ("reader", "%R~* +@read +ping"),
        ("writer", "%W~a:* +@write -flushall -flushdb -swapdb +watch +ping"),
        ("half", "%R~a:* ~b:* +@read +@write -keys -flushall -flushdb -swapdb +watch +ping"),
        ("operator", "+@admin +ping"),
        ("all", "~* +@all"),
    ];
    let file: String =
        users.iter().map(|(name, rules)| format!("user {name} on {} {rules}\n", hash())).collect();
    let rig = Rig::start(&file);
    for (name, _) in users {
        for (command, allowed) in RIGHTS {
            let mut all = rig.user("all");
            all.ask("MSET a:1 x b:1 y c:1 z").unwrap();
            let reply = rig.user(name).ask(command).unwrap();
            assert_eq!(reply.starts_with("-NOPERM"), !allowed.contains(&name), "{name}: {command}: {reply}");
        }
    }
    // In a transaction a command without rights spoils it.
    let mut reader = rig.user("reader");
    assert!(reader.ask("MULTI").unwrap().starts_with("-NOPERM"));
    let mut half = rig.user("all");
    assert_eq!(half.ask("ACL SETUSER half +multi +exec").unwrap(), "+OK");
    let mut half = rig.user("half");
    assert_eq!(half.ask("MULTI").unwrap(), "+OK");
    assert!(half.ask("SET c:1 x").unwrap().starts_with("-NOPERM"));
    assert!(half.ask("EXEC").unwrap().starts_with("-EXECABORT"));
    // Nor may it wait for the check of a password.
    assert_eq!(half.ask("MULTI").unwrap(), "+OK");
    assert_eq!(half.ask("AUTH reader secret").unwrap(), "-ERR Command not allowed inside a transaction");
    assert!(half.ask("EXEC").unwrap().starts_with("-EXECABORT"));
    // A large value of a key that is not theirs.
    half.send(format!("*3\r\n$3\r\nSET\r\n$3\r\nc:1\r\n$700000\r\n{}\r\n", "x".repeat(700_000))).unwrap();
    assert!(half.line().unwrap().starts_with("-NOPERM"));
    assert_eq!(half.ask("PING").unwrap(), "+PONG", "the value was read and dropped");
}

#[test]
fn users_change_while_clients_are_there() {
    let rig = Rig::start(&format!("user app on {0} ~* +@all\nuser other on {0} ~* +@read", hash()));
    let (mut app, mut other) = (rig.user("app"), rig.user("other"));
    assert!(other.ask("SET k v").unwrap().starts_with("-NOPERM"));
    assert_eq!(app.ask("ACL SETUSER other +set").unwrap(), "+OK");
    assert_eq!(other.ask("SET k v").unwrap(), "+OK");
    assert!(app.ask("ACL SETUSER other +nonsense").unwrap().starts_with("-ERR Error in ACL SETUSER"));
    assert_eq!(app.ask("ACL SETUSER other off").unwrap(), "+OK");
    assert_eq!(other.ask("GET k").unwrap(), NOAUTH);
    assert_eq!(app.ask("ACL DELUSER other nobody").unwrap(), ":1");
    let refused = "-ERR The 'default' user cannot be removed";
    assert_eq!(app.ask("ACL DELUSER app default").unwrap(), refused);
    assert_eq!(app.ask("ACL USERS").unwrap(), "*1");
}

/// As by Redis, also those that say nothing, and the one that has asked for it, behind its reply. Before, they stayed.
#[test]
fn connections_of_deleted_users_are_closed() {
    let line = |name: &str| format!("user {name} on {} ~* +@all\n", hash());
    let rig = Rig::start(&(line("app") + &line("gone")));
    let theirs = Server::redis(&[]).unwrap();
    let mut operator = Client::connect(theirs.address()).unwrap();
    let mut redis = [(); 2].map(|()| {
        assert_eq!(operator.ask("ACL SETUSER gone on >secret ~* +@all").unwrap(), "+OK");
        let mut client = Client::connect(theirs.address()).unwrap();
        assert_eq!(client.ask("AUTH gone secret").unwrap(), "+OK");
        client
    });
    assert_eq!(redis[0].ask("ACL DELUSER gone").unwrap(), ":1");
    assert!(redis.iter_mut().all(|client| client.rest().unwrap().is_empty()));
    let mut app = rig.user("app");
    for way in ["DELUSER", "LOAD", "SIGHUP"] {
        fs::write(rig.file(), line("app") + &line("gone")).unwrap();
        assert_eq!(app.ask("ACL LOAD").unwrap(), "+OK");
        let [mut own, mut other] = [(); 2].map(|()| rig.user("gone"));
        fs::write(rig.file(), line("app")).unwrap();
        match way {
            "DELUSER" => assert_eq!(own.ask("ACL DELUSER gone").unwrap(), ":1"),
            "LOAD" => assert_eq!(own.ask("ACL LOAD").unwrap(), "+OK"),
            _ => {
                let pid = Pid::from_raw(rig.server.pid().cast_signed()).unwrap();
                kill_process(pid, Signal::HUP).unwrap();
            }
        }
        assert!(own.rest().unwrap().is_empty() && other.rest().unwrap().is_empty(), "{way}");
        assert_eq!(app.ask("ACL WHOAMI").unwrap(), "$3", "the control, {way}");
        assert_eq!(app.line().unwrap(), "app");
    }
}

/// Before, the refusal was an element of the reply, the last one, and the replies to what followed were elements too.
#[test]
fn a_reply_that_has_begun_goes_on_without_the_right() {
    const VALUES: usize = 2000;
    // All together are more than the kernel keeps for a client that does not read.
    const BYTES: usize = 15_000;
    let rules = "~* +@read +multi +exec";
    let rig = Rig::start(&format!("user app on {0} ~* +@all\nuser reader on {0} {rules}", hash()));
    let mut app = rig.user("app");
    assert_eq!(app.ask(&format!("SET k {}", "v".repeat(BYTES))).unwrap(), "+OK");
    let transaction = format!("MULTI\r\nRANDOMKEY\r\n{}EXEC\r\n", "GET k\r\n".repeat(VALUES));
    for (command, before, lost, again) in [
        (format!("MGET{}\r\n", " k".repeat(VALUES)), 0, "-mget", "MGET k"),
        (transaction, VALUES + 2, "-exec", "EXEC"),
    ] {
        let mut reader = rig.user("reader");
        reader.send(command).unwrap();
        for _ in 0..before {
            assert!(reader.line().unwrap().starts_with('+'));
        }
        let has_random = before > 0;
        assert_eq!(reader.line().unwrap(), format!("*{}", VALUES + usize::from(has_random)));
        if has_random {
            assert_eq!([(); 2].map(|()| reader.line().unwrap()), ["$1", "k"]);
        }
        assert_eq!(app.ask(&format!("ACL SETUSER reader {lost}")).unwrap(), "+OK");
        for _ in 0..VALUES {
            assert_eq!(reader.line().unwrap(), format!("${BYTES}"), "{lost}");
            reader.exact(BYTES + 2).unwrap();
        }
        assert!(reader.ask(again).unwrap().contains("NOPERM"), "the control");
        assert_eq!(app.ask(&format!("ACL SETUSER reader {rules}")).unwrap(), "+OK");
    }
}

/// Before the fix, the answer was NOPERM, and that to the next LOAD or SAVE was OK whatever came of it.
#[test]
fn a_load_that_takes_its_own_right_away_is_answered() {
    let users = |rules: &str| format!("user app on {0} ~* +@all\nuser ops on {0} ~* {rules}\n", hash());
    let rig = Rig::start(&users("+@all"));
    let (mut app, mut ops) = (rig.user("app"), rig.user("ops"));
    for (rules, refusal) in [("+@all -acl", "-NOPERM"), ("off +@all", "-NOAUTH")] {
        fs::write(rig.file(), users(rules)).unwrap();
        assert_eq!(ops.ask("ACL LOAD").unwrap(), "+OK", "{rules}");
        assert!(ops.ask("ACL SAVE").unwrap().starts_with(refusal), "{rules}");
        assert_eq!(app.ask("ACL SETUSER ops on +@all").unwrap(), "+OK");
        assert_eq!(ops.ask("AUTH ops secret").unwrap(), "+OK");
        fs::write(rig.file(), "nonsense").unwrap();
        assert!(ops.ask("ACL LOAD").unwrap().starts_with("-ERR "), "{rules}");
    }
    assert_eq!(ops.ask("ACL SAVE").unwrap(), "+OK");
    assert!(fs::read_to_string(rig.file()).unwrap().contains("user ops on"));
}

/// What Redis answers, and what it notes.
#[test]
fn refusals_are_those_of_redis() {
    let users = format!("user default on nopass ~* +@all\nuser u on {} ~a +@all -get -client|list", hash());
    let ours = Rig::start(&users);
    let theirs = Server::redis(&[]).unwrap();
    let mut admins = [ours.client(), Client::connect(theirs.address()).unwrap()];
    let mut clients = [ours.client(), Client::connect(theirs.address()).unwrap()];
    let rules = "ACL SETUSER u on >secret ~a +@all -get -client|list";
    assert_eq!(admins[1].ask(rules).unwrap(), "+OK");
    for command in ["AUTH u secret", "GET a", "get b", "client LIST", "SET b 1", "MGET a b", "SET a 1"] {
        answer_alike(&mut clients, command);
    }
    for (rule, back) in [("-set", "+set"), ("resetkeys", "~a")] {
        for client in &mut clients {
            assert_eq!(["MULTI", "SET a 1"].map(|command| client.ask(command).unwrap()), ["+OK", "+QUEUED"]);
        }
        answer_alike(&mut admins, &format!("ACL SETUSER u {rule}"));
        answer_alike(&mut clients, "EXEC");
        let [ours, theirs] = admins.each_mut().map(|admin| texts(admin, "ACL LOG 1")[..9].to_vec());
        assert_eq!(ours, theirs);
        answer_alike(&mut admins, &format!("ACL SETUSER u {back}"));
    }
    answer_alike(&mut admins, "ACL DELUSER u default");
    for rules in ["%R~a", "%W~a", "%R~* %W~a", "~a"] {
        answer_alike(&mut admins, &format!("ACL SETUSER u resetkeys {rules} +@all"));
        for command in KEY_COMMANDS {
            for command in ["SET a 1", "DEL b"] {
                answer_alike(&mut admins, command);
            }
            answer_alike(&mut clients, command);
        }
    }
}

/// Who may write a key alone may ask whether it is there, and is told of its changes. Before, no notice came.
#[test]
fn writers_are_told_of_keys_as_by_redis() {
    let ours = Rig::start(&format!("user default on nopass ~* +@all\nuser w on {} %W~a* +@all", hash()));
    let theirs = Server::redis(&[]).unwrap();
    let mut admins = [ours.client(), Client::connect(theirs.address()).unwrap()];
    let mut clients = [ours.client(), Client::connect(theirs.address()).unwrap()];
    assert_eq!(admins[1].ask("ACL SETUSER w on >secret %W~a* +@all").unwrap(), "+OK");
    for client in &mut clients {
        assert_eq!(client.ask("HELLO 3 AUTH w secret").unwrap(), "%7");
        lines(client, "CLIENT TRACKING ON");
    }
    for command in ["EXISTS a", "STRLEN a", "GET a", "EXISTS b"] {
        answer_alike(&mut clients, command);
    }
    answer_alike(&mut admins, "SET b 1");
    answer_alike(&mut admins, "SET a 1");
    let notice = clients.each_mut().map(|client| [(); 6].map(|()| client.line().unwrap()));
    assert_eq!(notice[0], notice[1]);
    assert_eq!(notice[0][5], "a");
}

fn answer_alike(clients: &mut [Client; 2], command: &str) {
    let [ours, theirs] = clients.each_mut().map(|client| lines(client, command));
    assert_eq!(ours, theirs, "{command}");
}

/// Commands with the keys a and b.
const KEY_COMMANDS: &[&str] = &[
    "GET a",
    "GET b",
    "SET a 1",
    "SET a 1 GET",
    "SETNX a 1",
    "SETEX a 100 1",
    "GETSET a 2",
    "GETDEL a",
    "GETEX a",
    "APPEND a 1",
    "STRLEN a",
    "STRLEN b",
    "SETRANGE a 0 1",
    "GETRANGE a 0 -1",
    "INCR a",
    "SETBIT a 1 1",
    "GETBIT a 1",
    "BITCOUNT a",
    "EXISTS a",
    "EXISTS a b",
    "TYPE a",
    "TTL a",
    "EXPIRE a 100",
    "PERSIST a",
    "TOUCH a",
    "OBJECT ENCODING a",
    "WATCH a",
    "MGET a b",
    "MSET a 1",
    "MSETNX a 1 b 2",
    "DEL a",
    "UNLINK a",
    "COPY a b",
    "COPY b a REPLACE",
    "RENAME a b",
    "RENAMENX a b",
    "LCS a b",
];

/// All lines of a reply.
fn lines(client: &mut Client, command: &str) -> Vec<String> {
    client.send(format!("{command}\r\nECHO the-end\r\n")).unwrap();
    let mut lines = Vec::new();
    loop {
        match client.line().unwrap() {
            line if line == "the-end" => {
                lines.pop();
                return lines;
            }
            line => lines.push(line),
        }
    }
}

/// The texts among the lines of a reply.
fn texts(client: &mut Client, command: &str) -> Vec<String> {
    let is_text = |line: &String| {
        let number = line.strip_prefix(['*', '$', '%', '~', ':']);
        number.is_none_or(|number| number.parse::<i64>().is_err())
    };
    lines(client, command).into_iter().filter(is_text).collect()
}

#[test]
fn users_are_saved_and_read_again() {
    for options in [&[][..], &["--sandbox"]] {
        let rig = Rig::start_with(&format!("# gone\nuser app on {} ~* +@all\n", hash()), options);
        let mut app = rig.user("app");
        let rules = format!("~a:* %R~b +@read -get {}", hash());
        assert_eq!(app.ask(&format!("ACL SETUSER new on {rules}")).unwrap(), "+OK");
        assert!(!fs::read_to_string(rig.file()).unwrap().contains("new"));
        app.send("ACL SAVE\r\nACL WHOAMI\r\n").unwrap();
        assert_eq!([(); 3].map(|()| app.line().unwrap()), ["+OK", "$3", "app"], "{options:?}");
        let saved = fs::read_to_string(rig.file()).unwrap();
        let expected = format!("user app on {0} ~* +@all\nuser new on {0} ~a:* %R~b +@read -get\n", hash());
        assert_eq!(saved, expected);
        assert_eq!(fs::read_dir(rig.folder.path()).unwrap().count(), 1);
        let told = texts(&mut app, "ACL GETUSER new");
        let expected = [
            "flags",
            "on",
            "passwords",
            &hash()[1..],
            "commands",
            "-@all +@read -get",
            "keys",
            "~a:* %R~b",
            "channels",
            "",
            "selectors",
        ];
        assert_eq!(told, expected);
        assert_eq!(app.ask("ACL GETUSER nobody").unwrap(), "$-1");
        // What the file says is in force behind LOAD, and not before.
        let mut new = rig.user("new");
        fs::write(rig.file(), saved.replace("-get", "+get")).unwrap();
        assert!(new.ask("GET b").unwrap().starts_with("-NOPERM"));
        assert_eq!(app.ask("ACL LOAD").unwrap(), "+OK");
        assert_eq!(new.ask("GET b").unwrap(), "$-1");
        fs::write(rig.file(), "user app on nonsense").unwrap();
        let refused = app.ask("ACL LOAD").unwrap();
        assert!(refused.contains("line 1: nonsense: ") && refused.contains("no change"), "{refused}");
        assert_eq!(new.ask("GET b").unwrap(), "$-1");
        fs::remove_file(rig.file()).unwrap();
        assert!(app.ask("ACL LOAD").unwrap().starts_with("-ERR "));
        assert!(app.ask("ACL SAVE").unwrap().starts_with("-ERR There was an error trying to save the ACLs"));
        assert_eq!(app.ask("ACL WHOAMI").unwrap(), "$3");
    }
}

#[test]
fn guesses_keep_no_administrator_out() {
    let rig = Rig::start_with(&format!("user app on {} ~* +@all\n", hash()), &["--acl-waiting=1"]);
    let mut app = rig.user("app");
    // The second waits while the first is checked, and the others are refused: the queue is full.
    let mut guessers: Vec<_> = (0..20).map(|_| rig.client()).collect();
    guessers.iter_mut().for_each(|guesser| guesser.send("AUTH app wrong\r\n").unwrap());
    let mut replies = guessers.iter_mut().rev().map(|guesser| guesser.line().unwrap());
    assert!(replies.any(|reply| reply.contains("too many logins")));
    app.send("ACL SAVE\r\nACL LOAD\r\n").unwrap();
    assert_eq!([(); 2].map(|()| app.line().unwrap()), ["+OK", "+OK"]);
}

#[test]
fn refusals_are_logged() {
    let rig = Rig::start(&format!("user app on {0} ~* +@all\nuser half on {0} ~h:* +@read +multi", hash()));
    let (mut app, mut half) = (rig.user("app"), rig.user("half"));
    assert_eq!(lines(&mut app, "ACL LOG"), ["*0"]);
    for command in ["GET x", "GET x", "SET h:1 1"] {
        assert!(half.ask(command).unwrap().starts_with("-NOPERM"));
    }
    assert_eq!(half.ask("MULTI").unwrap(), "+OK");
    assert!(half.ask("GET y").unwrap().starts_with("-NOPERM"));
    for command in ["AUTH half wrong", "hello 3 AUTH half wrong"] {
        assert_eq!(rig.client().ask(command).unwrap(), WRONGPASS);
    }
    let told = texts(&mut app, "ACL LOG");
    let entries: Vec<_> = told.chunks(13).map(|entry| [2, 4, 6, 8].map(|at| entry[at].as_str())).collect();
    assert_eq!(
        entries,
        [
            ["auth", "toplevel", "hello", "half"],
            ["auth", "toplevel", "AUTH", "half"],
            ["key", "multi", "y", "half"],
            ["command", "toplevel", "set", "half"],
            ["key", "toplevel", "x", "half"],
        ]
    );
    assert!(told[12].starts_with("id="), "{}", told[12]);
    assert_eq!(lines(&mut app, "ACL LOG 1")[0], "*1");
    let counts =
        lines(&mut app, "ACL LOG").into_iter().filter(|line| line.starts_with(':')).collect::<Vec<_>>();
    assert_eq!(counts, [":1", ":1", ":1", ":1", ":2"]);
    assert_eq!(app.ask("ACL LOG RESET").unwrap(), "+OK");
    assert_eq!(lines(&mut app, "ACL LOG"), ["*0"]);
}

/// Replies of the commands that need no user, beside those of Redis.
#[test]
fn passwords_and_categories_are_those_of_redis() {
    let rig = Rig::start(&format!("user app on {} ~* +@all", hash()));
    let rival = Server::redis(&[]).unwrap();
    let (mut ours, mut theirs) = (rig.user("app"), Client::connect(rival.address()).unwrap());
    for command in [
        "ACL GENPASS 0",
        "ACL GENPASS 4097",
        "ACL GENPASS -1",
        "ACL GENPASS x",
        "ACL GENPASS 1 2",
        "ACL CAT nope",
        "ACL CAT a b",
        "ACL LOG x",
        "ACL LOG 1 2",
        "ACL LOG RESET",
        "ACL LOG 0",
        "ACL LOG -1",
        "ACL LOAD x",
        "ACL SAVE x",
        "ACL GETUSER",
        "ACL GETUSER nobody",
        "ACL NONSENSE",
    ] {
        assert_eq!(lines(&mut ours, command), lines(&mut theirs, command), "{command}");
    }
    for (bits, digits) in [("", "$64"), ("1", "$1"), ("5", "$2"), ("4096", "$1024")] {
        let passwords = [0, 1].map(|_| lines(&mut ours, &format!("ACL GENPASS {bits}")));
        assert_eq!([&passwords[0][0], &passwords[1][0]], [digits; 2]);
        assert_eq!(lines(&mut theirs, &format!("ACL GENPASS {bits}"))[0], digits);
        assert!(bits.len() == 1 || passwords[0] != passwords[1]);
        assert!(passwords[0][1].bytes().all(|digit| digit.is_ascii_hexdigit()));
    }
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names
    };
    let of_theirs = texts(&mut theirs, "ACL CAT");
    assert!(texts(&mut ours, "ACL CAT").iter().all(|category| of_theirs.contains(category)));
    assert_eq!(
        sorted(texts(&mut ours, "ACL CAT transaction")),
        sorted(texts(&mut theirs, "ACL CAT transaction"))
    );
    let of_theirs = texts(&mut theirs, "ACL CAT string");
    assert!(texts(&mut ours, "ACL CAT string").iter().all(|name| of_theirs.contains(name)));
}

/// Names of keys that no rule of a user is about reach it by no notice.
#[test]
fn notices_name_only_keys_that_the_user_has_a_rule_for() {
    let rig = Rig::start(&format!(
        "user app on {0} ~* +@all\nuser half on {0} %R~h:* %W~w:* +@read +client|tracking +ping +echo",
        hash()
    ));
    let (mut app, mut half) = (rig.user("app"), rig.client());
    assert_eq!(half.ask("HELLO 3 AUTH half secret").unwrap(), "%7");
    lines(&mut half, "PING");
    assert_eq!(texts(&mut half, "CLIENT TRACKING ON BCAST"), ["+OK"]);
    app.ask("MSET h:1 1 secret 1 w:1 1 h:2 1").unwrap();
    let told: Vec<_> =
        lines(&mut half, "PING").into_iter().filter(|line| line.contains(':') || *line == "secret").collect();
    assert_eq!(told, ["h:1", "w:1", "h:2"]);
}

/// Before the fix, the word behind a value that arrives in pieces was not known when the rights were looked at.
#[test]
fn a_large_store_returns_no_value_that_the_client_may_not_read() {
    let users = format!("user app on {0} ~* +@all\nuser writer on {0} %W~* +@all", hash());
    let rig = Rig::start_with(&users, &["--threshold=1000"]);
    let mut app = rig.user("app");
    let mut writer = rig.user("writer");
    assert_eq!(app.ask("SET k TOPSECRET").unwrap(), "+OK");
    assert_eq!(writer.ask("SET k x GET").unwrap(), NO_KEY);
    let value = "v".repeat(LARGE_BYTES);
    let store = |client: &mut Client, options: &[&str]| {
        let head = format!("*{}\r\n$3\r\nSET\r\n$1\r\nk\r\n${LARGE_BYTES}\r\n", 3 + options.len());
        client.send(head + &value[..LARGE_BYTES / 2]).unwrap();
        let words: String = options.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
        client.send(format!("{}\r\n{words}", &value[LARGE_BYTES / 2..])).unwrap();
        client.line().unwrap()
    };
    for options in [&["GET"][..], &["EX", "100", "get"]] {
        assert_eq!(store(&mut writer, options), NO_KEY);
        assert_eq!(app.ask("STRLEN k").unwrap(), ":9", "it was stored");
    }
    assert_eq!(store(&mut writer, &["EX", "100"]), "+OK");
    assert_eq!(store(&mut app, &["GET"]), format!("${LARGE_BYTES}"));
}

#[test]
fn a_rule_about_a_command_is_one_about_its_subcommands() {
    let rig = Rig::start(&format!("user some on {} ~* +@all -acl -config -client", hash()));
    let mut client = rig.user("some");
    for line in ["ACL SETUSER some ~* +@all", "ACL LIST", "CONFIG GET maxmemory", "CLIENT LIST"] {
        assert!(
            client.ask(line).unwrap().starts_with("-NOPERM this user has no permissions to run"),
            "{line}"
        );
    }
    assert_eq!(client.ask("PING").unwrap(), "+PONG");
}
