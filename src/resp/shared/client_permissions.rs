//! Finds the role of a client and the permissions of the role. If the network process does not know them, it sends a
//! request to an executor; the client's command stays in the input and runs again once the answer has arrived. The
//! checks themselves run in the executor (`auth`).

use std::rc::Rc;

use pgcache_resp::{Args, Command, Failure, Writer, flag, rule};

use crate::resp::auth::{AuthFailure, ServerPrivileges};
use crate::resp::ipc::answers::{IsRole, PrivilegesOf};
use crate::resp::ipc::catalog_request::{CatalogRequest, Password, RoleName};
use crate::resp::ipc::permission_cache::{NotPermitted, Permission};
use crate::resp::session::progress::Progress;
use crate::resp::session::{Implicit, Session, Waits};
use crate::resp::shared::Core;

/// Admits a client that has not authenticated if it may have the default role without authenticating, or if the command
/// needs no role.
pub fn admit(
    core: &mut Core,
    session: &mut Session,
    args: Args<'_>,
    replies: &mut Writer,
) -> Result<(), Progress> {
    let done = |failure: Failure<'_>, replies: &mut Writer| {
        failure.write(replies);
        Err(Progress::Done)
    };
    let entry = match Command::check(args) {
        Ok(entry) => entry,
        Err(failure) => return done(failure, replies),
    };
    let greets = entry.has(rule::GREETS);
    if entry.flags & flag::NO_AUTH != 0 && !greets || Command::names_role(entry, args) {
        return Ok(());
    }
    match (session.login.implicit, core.limits.default_role) {
        (Implicit::Unknown, Some(_)) => Err(request_implicit(core, session)),
        _ if greets => Ok(()),
        _ => done(Failure::NotAuthenticated, replies),
    }
}

/// Requests a check whether the client may have the default role without authenticating.
pub fn request_implicit(core: &mut Core, session: &mut Session) -> Progress {
    match core.limits.default_role {
        Some(user) => ask(core, session, Waits::Implicit, user, None),
        None => Progress::Close,
    }
}

/// Requests a check by an executor whether the client may have this role.
fn ask(
    core: &mut Core,
    session: &mut Session,
    waits: Waits,
    user: RoleName,
    password: Option<Password>,
) -> Progress {
    let question = CatalogRequest::Authenticate {
        user,
        password,
        peer: session.origin.peer,
        certificate: session.origin.certificate.as_deref().copied(),
    };
    let slow = question.is_slow();
    session.login.requests_sent = session.login.requests_sent.wrapping_add(1);
    if !core
        .submitter
        .work_queue
        .ask(core.number, session.ticket(), slow, question)
    {
        return Progress::Starve;
    }
    session.wait_for(waits);
    Progress::Wait
}

/// Checks a name and a password. The first call sends them to an executor. The next call, after the answer, logs the
/// client in or replies with an error.
pub fn authenticate(
    core: &mut Core,
    session: &mut Session,
    user: Option<&[u8]>,
    password: &[u8],
    replies: &mut Writer,
) -> Result<(), Progress> {
    if let Some(result) = session.login.authentication.take() {
        return match result {
            Ok(Ok(authenticated)) => {
                let user = named(core, user).unwrap_or_default();
                if core.log_in(session, &authenticated, &user) {
                    return Ok(());
                }
                replies.error(&[b"ERR too many connections for the role or the database"]);
                Err(Progress::Done)
            }
            Ok(Err(failure)) => {
                write_words(failure.words(), replies);
                Err(Progress::Done)
            }
            Err(()) => {
                replies.error(&[b"ERR authentication failed because of an error in the server"]);
                Err(Progress::Done)
            }
        };
    }
    if !session.origin.peer.hides_words() && !core.limits.cleartext {
        write_words(AuthFailure::Cleartext.words(), replies);
        return Err(Progress::Done);
    }
    let user = named(core, user).and_then(|user| RoleName::new(&user));
    match (user, Password::new(password)) {
        (Some(user), Some(password)) => {
            let waits = Waits::Authentication;
            Err(ask(core, session, waits, user, Some(password)))
        }
        _ => {
            Failure::WrongPassword.write(replies);
            Err(Progress::Done)
        }
    }
}

fn write_words(words: &str, replies: &mut Writer) {
    replies.error(&[words.as_bytes()]);
}

/// Returns the name of the role that the client gives. If the client gives no name, or `default`, returns the default
/// role; None if no default role is set.
fn named(core: &Core, user: Option<&[u8]>) -> Option<Vec<u8>> {
    match user {
        Some(user) if user != b"default" => Some(user.to_vec()),
        _ => Some(core.limits.default_role?.as_bytes().to_vec()),
    }
}

/// Returns the permission of the client's role on the cache of the client's database.
#[inline]
pub fn permission(
    core: &mut Core,
    session: &mut Session,
    replies: &mut Writer,
) -> Result<Rc<Permission>, Progress> {
    if let Some(permission) = &session.permission
        && permission.holds()
        && !permission.is_past(session.login.by_password)
    {
        return Ok(Rc::clone(permission));
    }
    session.permission = None;
    let permission = permission_in(core, session, session.database, replies)?;
    session.permission = Some(Rc::clone(&permission));
    Ok(permission)
}

/// Returns the permission of the client's role on the cache of another database.
pub fn permission_in(
    core: &mut Core,
    session: &mut Session,
    database: u32,
    replies: &mut Writer,
) -> Result<Rc<Permission>, Progress> {
    let Some(role) = session.login.role else {
        Failure::NotAuthenticated.write(replies);
        return Err(Progress::Done);
    };
    let looked_up =
        core.catalog
            .permissions
            .look_up(&core.submitter.work_queue, role, database, session.id);
    match looked_up {
        Ok(permission) if permission.is_past(session.login.by_password) => {
            replies.error(&[b"NOAUTH the role's password has expired"]);
            Err(Progress::Done)
        }
        Ok(permission) => Ok(permission),
        Err(NotPermitted::Asked) => {
            session.wait_for(Waits::Permission);
            Err(Progress::Wait)
        }
        Err(NotPermitted::NoPlace) => Err(Progress::Starve),
        Err(NotPermitted::Refused(why)) => {
            write_words(why.words(), replies);
            Err(Progress::Done)
        }
        Err(NotPermitted::Failed) => {
            replies.error(&[
                b"ERR could not determine the privileges of the role: see the server's log",
            ]);
            Err(Progress::Done)
        }
    }
}

/// Returns whether a role has this name.
pub fn is_role(core: &mut Core, session: &mut Session, name: &[u8]) -> Result<bool, Progress> {
    let Some(name) = RoleName::new(name) else {
        return Ok(false);
    };
    let (known, queue) = (&mut core.catalog.roles, &core.submitter.work_queue);
    let known = known.look_up(queue, core.number, IsRole(name), session.id);
    // If the executor failed, the client's command runs again.
    wait_for(session, known)?.ok_or(Progress::Starve)
}

/// Returns the server privileges of the client's role; none if an executor failed to read them.
pub fn privileges(core: &mut Core, session: &mut Session) -> Result<ServerPrivileges, Progress> {
    let Some(role) = session.login.role else {
        return Ok(ServerPrivileges::default());
    };
    let (known, queue) = (&mut core.catalog.privileges, &core.submitter.work_queue);
    let known = known.look_up(queue, core.number, PrivilegesOf(role), session.id);
    Ok(wait_for(session, known)?.unwrap_or_default())
}

/// Makes the client wait for an answer that is not yet known.
fn wait_for<T>(session: &mut Session, known: Result<T, NotPermitted>) -> Result<T, Progress> {
    known.map_err(|why| match why {
        NotPermitted::Asked => {
            session.wait_for(Waits::Permission);
            Progress::Wait
        }
        _ => Progress::Starve,
    })
}
