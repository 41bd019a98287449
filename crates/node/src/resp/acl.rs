//! ACL: the users, and who the client is.

use std::sync::Arc;

use minos_engine::Mode;
use minos_proto::resp::{Id, compose};

use super::{
    call::{Call, Done, fail},
    session::RespSession,
};

const NO_USERS: &str = "ERR this server has no users; they come from --acl";

/// Executes a command about users. Changes hold until the file is read again.
pub(super) fn execute<M: Mode>(session: &mut RespSession, call: &Call<'_>, tx: &mut Vec<u8>) -> Done<M> {
    let Some(guard) = &mut session.guard else {
        return match call.spec.id {
            Id::AclWhoAmI => {
                compose::bulk(tx, b"default");
                Ok(())
            }
            _ => fail(NO_USERS),
        };
    };
    let authority = Arc::clone(guard.authority());
    let acl = authority.acl();
    match call.spec.id {
        Id::AclWhoAmI => {
            let name = guard.user().map(|user| user.name().to_owned()).unwrap_or_default();
            compose::bulk(tx, name.as_bytes());
        }
        Id::AclUsers => {
            compose::array(tx, acl.users().count());
            acl.users().for_each(|user| compose::bulk(tx, user.name().as_bytes()));
        }
        Id::AclList => {
            compose::array(tx, acl.users().count());
            acl.users().for_each(|user| compose::bulk(tx, user.to_string().as_bytes()));
        }
        Id::AclDelUser => {
            let mut changed = (*acl).clone();
            let names = call.command.arguments(2).filter_map(|name| std::str::from_utf8(name).ok());
            let removed = names.filter(|name| changed.remove(name)).count();
            authority.replace(changed);
            compose::integer(tx, removed as i64);
        }
        _ => {
            let mut changed = (*acl).clone();
            let words: Result<Vec<_>, _> = call.command.arguments(2).map(std::str::from_utf8).collect();
            let Ok([name, rules @ ..]) = words.as_deref() else {
                return fail("ERR names and rules are text");
            };
            if let Err(error) = changed.set_user(name, rules.iter().copied()) {
                return fail(format!("ERR Error in ACL SETUSER modifier {error}"));
            }
            authority.replace(changed);
            tx.extend_from_slice(compose::OK);
        }
    }
    Ok(())
}
