//! The table of commands: name, arity, flags, positions of keys, group, and a summary, each declared once.
//!
//! Execution, `COMMAND`, key checks and categories of access control come from here.

/// A property of a command; a set of them is a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flag(pub u16);

impl Flag {
    /// No property.
    pub const NONE: Self = Self(0);
    /// It may change items.
    pub const WRITE: Self = Self(1);
    /// It reads items.
    pub const READONLY: Self = Self(1 << 1);
    /// It may need memory.
    pub const DENYOOM: Self = Self(1 << 2);
    /// For operators.
    pub const ADMIN: Self = Self(1 << 3);
    /// It takes constant time, or grows only with its arguments.
    pub const FAST: Self = Self(1 << 4);
    /// It needs no authentication.
    pub const NO_AUTH: Self = Self(1 << 5);
    /// Within MULTI it is executed at once.
    pub const AT_ONCE: Self = Self(1 << 6);
    /// It can harm others.
    pub const DANGEROUS: Self = Self(1 << 7);
    /// Its name is followed by that of a subcommand.
    pub const CONTAINER: Self = Self(1 << 8);
    /// Its name is that of a subcommand too.
    pub const SUBCOMMAND: Self = Self(1 << 9);

    /// Those that `COMMAND` names, in Redis' order.
    const NAMED: [(Self, &'static str); 6] = [
        (Self::WRITE, "write"),
        (Self::READONLY, "readonly"),
        (Self::DENYOOM, "denyoom"),
        (Self::ADMIN, "admin"),
        (Self::FAST, "fast"),
        (Self::NO_AUTH, "no_auth"),
    ];

    const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// True if every property of `other` is among these.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The group of a command in Redis' documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Commands for strings.
    String,
    /// Commands for bits of strings.
    Bitmap,
    /// Commands for keys.
    Generic,
    /// Commands about the connection.
    Connection,
    /// Commands about the server.
    Server,
    /// Transactions.
    Transactions,
    /// Messages to clients.
    PubSub,
}

impl Group {
    /// Its name in `COMMAND DOCS`.
    pub fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Bitmap => "bitmap",
            Self::Generic => "generic",
            Self::Connection => "connection",
            Self::Server => "server",
            Self::Transactions => "transactions",
            Self::PubSub => "pubsub",
        }
    }
}

/// Positions of the keys among the arguments, where 0 is the name; all zero for no keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// That of the first key.
    pub first: u8,
    /// That of the last key; -1 is the last argument.
    pub last: i8,
    /// From one key to the next.
    pub step: u8,
}

impl Keys {
    /// No keys.
    pub const NONE: Self = Self { first: 0, last: 0, step: 0 };
    const ONE: Self = Self { first: 1, last: 1, step: 1 };
    const TWO: Self = Self { first: 1, last: 2, step: 1 };
    const ALL: Self = Self { first: 1, last: -1, step: 1 };
    const PAIRS: Self = Self { first: 1, last: -1, step: 2 };
    const SECOND: Self = Self { first: 2, last: 2, step: 1 };

    /// True if there is one key at most, however many arguments there are.
    pub fn is_single(self) -> bool {
        self.last == self.first as i8
    }

    /// The positions in a command of `len` arguments, the name included.
    pub fn positions(self, len: usize) -> impl Iterator<Item = usize> {
        let last = if self.last < 0 {
            len.saturating_sub(self.last.unsigned_abs() as usize)
        } else {
            self.last as usize
        };
        let first = usize::from(self.first);
        let end = if first == 0 { 0 } else { (last + 1).min(len) };
        (first..end).step_by(usize::from(self.step.max(1)))
    }
}

/// A command that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Which it is.
    pub id: Id,
    /// Its name in small letters; that of a subcommand behind `|`.
    pub name: &'static str,
    /// Its arguments, the name included; a negative number is a minimum.
    pub arity: i8,
    /// Its properties.
    pub flags: Flag,
    /// The positions of its keys.
    pub keys: Keys,
    /// Its group.
    pub group: Group,
    /// The version of Redis that has it first.
    pub since: &'static str,
    /// One sentence.
    pub summary: &'static str,
}

impl Spec {
    /// True if it takes so many arguments, the name included.
    #[inline]
    pub fn takes(&self, arguments: usize) -> bool {
        let wanted = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { arguments >= wanted } else { arguments == wanted }
    }

    /// The names of its properties, as `COMMAND` tells them.
    pub fn flag_names(&self) -> impl Iterator<Item = &'static str> {
        Flag::NAMED.iter().filter(|(flag, _)| self.flags.has(*flag)).map(|(_, name)| *name)
    }
}

/// Declares the commands: the names of their variants, and their table.
macro_rules! commands {
    ($($id:ident $name:literal $arity:literal [$($flag:ident)*] $keys:ident $group:ident $since:literal $summary:literal)*) => {
        /// Which command it is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Id { $(#[doc = $summary] $id,)* }

        /// All commands, by their [`Id`].
        pub const TABLE: &[Spec] = &[$(Spec {
            id: Id::$id,
            name: $name,
            arity: $arity,
            flags: Flag::NONE$(.with(Flag::$flag))*,
            keys: Keys::$keys,
            group: Group::$group,
            since: $since,
            summary: $summary,
        },)*];
    };
}

commands! {
    Get "get" 2 [READONLY FAST] ONE String "1.0.0" "Get the value of a key"
    Set "set" -3 [WRITE DENYOOM] ONE String "1.0.0" "Set the value of a key"
    SetNx "setnx" 3 [WRITE DENYOOM FAST] ONE String "1.0.0" "Set the value of a key that does not exist"
    SetEx "setex" 4 [WRITE DENYOOM] ONE String "2.0.0" "Set the value and expiry of a key, in seconds"
    PSetEx "psetex" 4 [WRITE DENYOOM] ONE String "2.6.0" "Set the value and expiry of a key, in milliseconds"
    GetSet "getset" 3 [WRITE DENYOOM FAST] ONE String "1.0.0" "Set the value of a key and return its old value"
    GetDel "getdel" 2 [WRITE FAST] ONE String "6.2.0" "Get the value of a key and delete the key"
    GetEx "getex" -2 [WRITE FAST] ONE String "6.2.0" "Get the value of a key and set its expiry"
    MGet "mget" -2 [READONLY FAST] ALL String "1.0.0" "Get the values of all the given keys"
    MSet "mset" -3 [WRITE DENYOOM] PAIRS String "1.0.1" "Set keys to values"
    MSetNx "msetnx" -3 [WRITE DENYOOM] PAIRS String "1.0.1" "Set keys to values, if none of the keys exists"
    Append "append" 3 [WRITE DENYOOM FAST] ONE String "2.0.0" "Append a value to a key"
    StrLen "strlen" 2 [READONLY FAST] ONE String "2.2.0" "Get the length of the value of a key"
    GetRange "getrange" 4 [READONLY] ONE String "2.4.0" "Get a part of the value of a key"
    SubStr "substr" 4 [READONLY] ONE String "1.0.0" "Get a part of the value of a key"
    SetRange "setrange" 4 [WRITE DENYOOM] ONE String "2.2.0" "Overwrite a part of the value of a key"
    Incr "incr" 2 [WRITE DENYOOM FAST] ONE String "1.0.0" "Increment the integer of a key by one"
    Decr "decr" 2 [WRITE DENYOOM FAST] ONE String "1.0.0" "Decrement the integer of a key by one"
    IncrBy "incrby" 3 [WRITE DENYOOM FAST] ONE String "1.0.0" "Increment the integer of a key"
    DecrBy "decrby" 3 [WRITE DENYOOM FAST] ONE String "1.0.0" "Decrement the integer of a key"
    IncrByFloat "incrbyfloat" 3 [WRITE DENYOOM FAST] ONE String "2.6.0" "Increment the decimal number of a key"
    Lcs "lcs" -3 [READONLY] TWO String "7.0.0" "Find the longest common subsequence of two values"
    SetBit "setbit" 4 [WRITE DENYOOM] ONE Bitmap "2.2.0" "Set or clear a bit of the value of a key"
    GetBit "getbit" 3 [READONLY FAST] ONE Bitmap "2.2.0" "Get a bit of the value of a key"
    BitCount "bitcount" -2 [READONLY] ONE Bitmap "2.6.0" "Count the set bits of the value of a key"
    Del "del" -2 [WRITE] ALL Generic "1.0.0" "Delete keys"
    Unlink "unlink" -2 [WRITE FAST] ALL Generic "4.0.0" "Delete keys"
    Exists "exists" -2 [READONLY FAST] ALL Generic "1.0.0" "Count the keys that exist"
    Touch "touch" -2 [READONLY FAST] ALL Generic "3.2.1" "Mark keys as read and count those that exist"
    Ttl "ttl" 2 [READONLY FAST] ONE Generic "1.0.0" "Get the time to live of a key in seconds"
    PTtl "pttl" 2 [READONLY FAST] ONE Generic "2.6.0" "Get the time to live of a key in milliseconds"
    Expire "expire" -3 [WRITE FAST] ONE Generic "1.0.0" "Set the time to live of a key in seconds"
    PExpire "pexpire" -3 [WRITE FAST] ONE Generic "2.6.0" "Set the time to live of a key in milliseconds"
    ExpireAt "expireat" -3 [WRITE FAST] ONE Generic "1.2.0" "Set the expiry of a key, in Unix seconds"
    PExpireAt "pexpireat" -3 [WRITE FAST] ONE Generic "2.6.0" "Set the expiry of a key, in Unix milliseconds"
    ExpireTime "expiretime" 2 [READONLY FAST] ONE Generic "7.0.0" "Get the expiry of a key, in Unix seconds"
    PExpireTime "pexpiretime" 2 [READONLY FAST] ONE Generic "7.0.0" "Get the expiry of a key, in Unix milliseconds"
    Persist "persist" 2 [WRITE FAST] ONE Generic "2.2.0" "Remove the expiry of a key"
    Type "type" 2 [READONLY FAST] ONE Generic "1.0.0" "Get the type of the value of a key"
    Rename "rename" 3 [WRITE] TWO Generic "1.0.0" "Rename a key"
    RenameNx "renamenx" 3 [WRITE FAST] TWO Generic "1.0.0" "Rename a key, if the new one does not exist"
    Copy "copy" -3 [WRITE DENYOOM] TWO Generic "6.2.0" "Copy a key"
    RandomKey "randomkey" 1 [READONLY] NONE Generic "1.0.0" "Get a random key"
    Scan "scan" -2 [READONLY] NONE Generic "2.8.0" "List some keys, and where to go on"
    KeysOf "keys" 2 [READONLY DANGEROUS] NONE Generic "1.0.0" "List the keys that match a pattern"
    Object "object" -2 [CONTAINER] NONE Generic "2.2.3" "Facts about the value of a key"
    ObjectEncoding "object|encoding" 3 [READONLY SUBCOMMAND] SECOND Generic "2.2.3" "Get the encoding of the value of a key"
    ObjectFreq "object|freq" 3 [READONLY SUBCOMMAND] SECOND Generic "4.0.0" "Get the access frequency of a key"
    ObjectIdleTime "object|idletime" 3 [READONLY SUBCOMMAND] SECOND Generic "2.2.3" "Get the seconds since the last access to a key"
    ObjectRefCount "object|refcount" 3 [READONLY SUBCOMMAND] SECOND Generic "2.2.3" "Get the references to the value of a key"
    ObjectHelp "object|help" 2 [SUBCOMMAND] NONE Generic "6.2.0" "List the subcommands"
    Wait "wait" 3 [] NONE Generic "3.0.0" "Wait for replicas, of which there are none"
    Ping "ping" -1 [FAST] NONE Connection "1.0.0" "Ping the server"
    Echo "echo" 2 [FAST] NONE Connection "1.0.0" "Echo the given string"
    Hello "hello" -1 [FAST NO_AUTH] NONE Connection "6.0.0" "Choose the version of the protocol"
    Auth "auth" -2 [FAST NO_AUTH] NONE Connection "1.0.0" "Authenticate"
    Quit "quit" -1 [FAST NO_AUTH AT_ONCE] NONE Connection "1.0.0" "Close the connection"
    Reset "reset" 1 [FAST NO_AUTH AT_ONCE] NONE Connection "6.2.0" "Reset the connection"
    Select "select" 2 [FAST] NONE Connection "1.0.0" "Choose the database, of which there is one"
    Client "client" -2 [CONTAINER] NONE Connection "2.4.0" "Commands about connections"
    ClientId "client|id" 2 [SUBCOMMAND] NONE Connection "5.0.0" "Get the number of this connection"
    ClientSetName "client|setname" 3 [SUBCOMMAND] NONE Connection "2.6.9" "Name this connection"
    ClientGetName "client|getname" 2 [SUBCOMMAND] NONE Connection "2.6.9" "Get the name of this connection"
    ClientSetInfo "client|setinfo" 4 [SUBCOMMAND] NONE Connection "7.2.0" "Set the name or version of the library"
    ClientInfo "client|info" 2 [SUBCOMMAND] NONE Connection "6.2.0" "Facts about this connection"
    ClientList "client|list" -2 [ADMIN SUBCOMMAND] NONE Connection "2.4.0" "List the open connections"
    ClientKill "client|kill" -3 [ADMIN SUBCOMMAND] NONE Connection "2.4.0" "Close connections of Redis' protocol"
    ClientPause "client|pause" -3 [ADMIN SUBCOMMAND] NONE Connection "3.0.0" "Let clients of this protocol wait"
    ClientUnpause "client|unpause" 2 [ADMIN SUBCOMMAND] NONE Connection "6.2.0" "End the pause of clients"
    ClientUnblock "client|unblock" -3 [ADMIN SUBCOMMAND] NONE Connection "5.0.0" "Unblock a client, of which none is blocked"
    ClientReply "client|reply" 3 [SUBCOMMAND] NONE Connection "3.2.0" "Choose whether the server replies"
    ClientNoEvict "client|no-evict" 3 [ADMIN SUBCOMMAND] NONE Connection "7.0.0" "Keep this connection when memory is short"
    ClientNoTouch "client|no-touch" 3 [SUBCOMMAND] NONE Connection "7.2.0" "Read without counting as an access"
    ClientGetRedir "client|getredir" 2 [SUBCOMMAND] NONE Connection "6.0.0" "Get the connection that tracking notices go to"
    ClientTracking "client|tracking" -3 [SUBCOMMAND] NONE Connection "6.0.0" "Choose whether the client is told of changes"
    ClientCaching "client|caching" 3 [SUBCOMMAND] NONE Connection "6.0.0" "Make the next command an exception from tracking"
    ClientTrackingInfo "client|trackinginfo" 2 [SUBCOMMAND] NONE Connection "6.2.0" "Facts about tracking"
    ClientHelp "client|help" 2 [SUBCOMMAND] NONE Connection "5.0.0" "List the subcommands"
    Multi "multi" 1 [FAST AT_ONCE] NONE Transactions "1.2.0" "Begin a transaction"
    Exec "exec" 1 [AT_ONCE] NONE Transactions "1.2.0" "Execute the transaction"
    Discard "discard" 1 [FAST AT_ONCE] NONE Transactions "2.0.0" "Discard the transaction"
    Watch "watch" -2 [FAST AT_ONCE] ALL Transactions "2.2.0" "Execute the next transaction only if these keys do not change"
    Unwatch "unwatch" 1 [FAST] NONE Transactions "2.2.0" "Forget the watched keys"
    Subscribe "subscribe" -2 [] NONE PubSub "2.0.0" "Get messages of a channel"
    Unsubscribe "unsubscribe" -1 [] NONE PubSub "2.0.0" "Get no more messages of a channel"
    DbSize "dbsize" 1 [READONLY FAST] NONE Server "1.0.0" "Count the keys"
    FlushDb "flushdb" -1 [WRITE DANGEROUS] NONE Server "1.0.0" "Delete all keys"
    FlushAll "flushall" -1 [WRITE DANGEROUS] NONE Server "1.0.0" "Delete all keys"
    SwapDb "swapdb" 3 [WRITE FAST DANGEROUS] NONE Server "4.0.0" "Swap databases, of which there is one"
    Time "time" 1 [FAST] NONE Server "2.6.0" "Get the time"
    Info "info" -1 [DANGEROUS] NONE Server "1.0.0" "Facts and statistics about the server"
    CommandOf "command" -1 [CONTAINER] NONE Server "2.8.13" "Facts about all commands"
    CommandCount "command|count" 2 [SUBCOMMAND] NONE Server "2.8.13" "Count the commands"
    CommandInfo "command|info" -2 [SUBCOMMAND] NONE Server "2.8.13" "Facts about commands"
    CommandDocs "command|docs" -2 [SUBCOMMAND] NONE Server "7.0.0" "Documentation of commands"
    CommandGetKeys "command|getkeys" -4 [SUBCOMMAND] NONE Server "2.8.13" "Get the keys of a command"
    CommandList "command|list" -2 [SUBCOMMAND] NONE Server "7.0.0" "List the commands"
    CommandHelp "command|help" 2 [SUBCOMMAND] NONE Server "5.0.0" "List the subcommands"
    Config "config" -2 [CONTAINER] NONE Server "2.0.0" "Commands about options"
    ConfigGet "config|get" -3 [ADMIN SUBCOMMAND] NONE Server "2.0.0" "Get options"
    ConfigSet "config|set" -4 [ADMIN SUBCOMMAND] NONE Server "2.0.0" "Set options"
    ConfigResetStat "config|resetstat" 2 [ADMIN SUBCOMMAND] NONE Server "2.0.0" "Reset the statistics"
    ConfigHelp "config|help" 2 [SUBCOMMAND] NONE Server "5.0.0" "List the subcommands"
    Memory "memory" -2 [CONTAINER] NONE Server "4.0.0" "Commands about memory"
    MemoryUsage "memory|usage" -3 [READONLY SUBCOMMAND] SECOND Server "4.0.0" "Estimate the memory of a key"
    MemoryHelp "memory|help" 2 [SUBCOMMAND] NONE Server "4.0.0" "List the subcommands"
    SlowLog "slowlog" -2 [CONTAINER] NONE Server "2.2.12" "Commands about slow commands"
    SlowLogGet "slowlog|get" -2 [ADMIN SUBCOMMAND] NONE Server "2.2.12" "Get the slow commands"
    SlowLogLen "slowlog|len" 2 [ADMIN SUBCOMMAND] NONE Server "2.2.12" "Count the slow commands"
    SlowLogReset "slowlog|reset" 2 [ADMIN SUBCOMMAND] NONE Server "2.2.12" "Forget the slow commands"
    SlowLogHelp "slowlog|help" 2 [SUBCOMMAND] NONE Server "6.2.0" "List the subcommands"
    Latency "latency" -2 [CONTAINER] NONE Server "2.8.13" "Commands about latency"
    LatencyLatest "latency|latest" 2 [ADMIN SUBCOMMAND] NONE Server "2.8.13" "Get the latest latency events"
    LatencyHistory "latency|history" 3 [ADMIN SUBCOMMAND] NONE Server "2.8.13" "Get the latency events of a kind"
    LatencyReset "latency|reset" -2 [ADMIN SUBCOMMAND] NONE Server "2.8.13" "Forget latency events"
    LatencyHistogram "latency|histogram" -2 [ADMIN SUBCOMMAND] NONE Server "7.0.0" "Get the latency of commands"
    LatencyHelp "latency|help" 2 [SUBCOMMAND] NONE Server "2.8.13" "List the subcommands"
    Acl "acl" -2 [CONTAINER] NONE Server "6.0.0" "Commands about users"
    AclWhoAmI "acl|whoami" 2 [SUBCOMMAND] NONE Server "6.0.0" "Get the name of this user"
    AclUsers "acl|users" 2 [ADMIN SUBCOMMAND] NONE Server "6.0.0" "Get the names of the users"
    AclList "acl|list" 2 [ADMIN SUBCOMMAND] NONE Server "6.0.0" "Get the users and their rules"
    AclSetUser "acl|setuser" -3 [ADMIN SUBCOMMAND] NONE Server "6.0.0" "Change the rules of a user"
    AclDelUser "acl|deluser" -3 [ADMIN SUBCOMMAND] NONE Server "6.0.0" "Remove users"
    AclGetUser "acl|getuser" 3 [ADMIN SUBCOMMAND] NONE Server "6.0.0" "Get the rules of a user"
    AclLoad "acl|load" 2 [ADMIN SUBCOMMAND] NONE Server "6.0.0" "Read the users from their file"
    AclSave "acl|save" 2 [ADMIN SUBCOMMAND] NONE Server "6.0.0" "Write the users to their file"
    AclLog "acl|log" -2 [ADMIN SUBCOMMAND] NONE Server "6.0.0" "List what clients were refused"
    AclCat "acl|cat" -2 [SUBCOMMAND] NONE Server "6.0.0" "List the categories, or the commands of one"
    AclGenPass "acl|genpass" -2 [SUBCOMMAND] NONE Server "6.0.0" "Make a random password"
    AclHelp "acl|help" 2 [SUBCOMMAND] NONE Server "6.0.0" "List the subcommands"
}

/// Longest name of a command without a subcommand.
const NAME_BYTES_MAX: usize = 16;
/// Places of [`INDEX`]: several times the commands, so that most names are found at the first.
const PLACES: usize = 512;
const _: () = assert!(TABLE.len() < 255);

/// In one place, so that a command's address is one.
static SPECS: &[Spec] = TABLE;

/// A name in small letters as a number; 0 if it is none. Exact for names of letters, of which all names consist.
#[inline]
const fn packed(name: &[u8]) -> u128 {
    if name.len() > NAME_BYTES_MAX {
        return 0;
    }
    let (mut number, mut at) = (0, 0);
    while at < name.len() {
        number = number << 8 | (name[at] | 0x20) as u128;
        at += 1;
    }
    number
}

#[inline]
const fn place(packed: u128) -> usize {
    let folded = packed as u64 ^ (packed >> 64) as u64;
    (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - PLACES.ilog2())) as usize
}

/// The packed name at each place, and the number of its command.
static INDEX: [(u128, u8); PLACES] = index();

const fn index() -> [(u128, u8); PLACES] {
    let mut index = [(0, 0); PLACES];
    let mut number = 0;
    while number < TABLE.len() {
        if !TABLE[number].flags.has(Flag::SUBCOMMAND) {
            let packed = packed(TABLE[number].name.as_bytes());
            let mut at = place(packed);
            while index[at].0 != 0 {
                at = (at + 1) % PLACES;
            }
            index[at] = (packed, number as u8);
        }
        number += 1;
    }
    index
}

/// All commands, subcommands behind their containers.
pub fn specs() -> &'static [Spec] {
    SPECS
}

/// The command of this name, in any case.
#[inline]
pub fn find(name: &[u8]) -> Option<&'static Spec> {
    let packed = packed(name);
    let mut at = place(packed);
    while INDEX[at].0 != 0 {
        if INDEX[at].0 == packed {
            return Some(&SPECS[usize::from(INDEX[at].1)]);
        }
        at = (at + 1) % PLACES;
    }
    None
}

/// The subcommands of a command.
pub fn subcommands(container: &Spec) -> impl Iterator<Item = &'static Spec> {
    let name = container.name;
    SPECS.iter().filter(move |spec| spec.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('|')))
}

/// The subcommand of this name, in any case.
pub fn find_subcommand(container: &Spec, name: &[u8]) -> Option<&'static Spec> {
    let at = container.name.len() + 1;
    subcommands(container).find(|spec| spec.name.as_bytes()[at..].eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_by_its_name_in_any_case() {
        for spec in SPECS {
            match spec.name.split_once('|') {
                None => {
                    assert_eq!(find(spec.name.as_bytes()), Some(spec));
                    assert_eq!(find(spec.name.to_uppercase().as_bytes()), Some(spec));
                    assert!(spec.name.bytes().all(|byte| byte.is_ascii_lowercase()), "{}", spec.name);
                    assert!(spec.name.len() <= NAME_BYTES_MAX);
                }
                Some((container, name)) => {
                    let container = find(container.as_bytes()).unwrap();
                    assert!(container.flags.has(Flag::CONTAINER) && spec.flags.has(Flag::SUBCOMMAND));
                    assert_eq!(find_subcommand(container, name.to_uppercase().as_bytes()), Some(spec));
                }
            }
        }
        for name in ["", "ge", "gett", "psubscribe", "get\0", "@et", "a name of more than sixteen bytes"] {
            assert_eq!(find(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn keys_are_where_the_table_says() {
        let positions =
            |name: &str, len| find(name.as_bytes()).unwrap().keys.positions(len).collect::<Vec<_>>();
        assert_eq!(positions("get", 2), [1]);
        assert_eq!(positions("mset", 5), [1, 3]);
        assert_eq!(positions("del", 4), [1, 2, 3]);
        assert_eq!(positions("ping", 2), [0; 0]);
        assert_eq!(positions("rename", 3), [1, 2]);
    }
}
