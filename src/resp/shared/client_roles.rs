//! The roles of a network process's clients: handles results of authentication, connection limits, and roles that may
//! no longer log in. It checks no password: an executor does that (`auth`).

use std::time::{Duration, Instant};

use pgrx::pg_sys::Oid;

use crate::pg::resp::client_registry::LoggedIn;
use crate::pg::session::clock::{self};
use crate::pg::session::failure;
use crate::pg::session::fault::{self, Fault};
use crate::resp::auth::{Authenticated, ServerPrivileges};
use crate::resp::ipc::answers::PrivilegesOf;
use crate::resp::ipc::catalog_request::{CatalogResponse, RoleName};
use crate::resp::ipc::permission_cache::NotPermitted;
use crate::resp::session::{Flushing, Implicit, Session, Waits};
use crate::resp::shared::Core;

/// The number of roles whose privileges are requested in one round.
const ASKED_AT_ONCE: usize = 256;
/// The delay of the reply to a failed AUTH.
const PENALTY: Duration = Duration::from_secs(1);

impl Core {
    /// Takes the answer to an authentication request. Only the answer to the client's latest request counts. Otherwise
    /// the late answer to a request within an EXEC, for which the client does not wait, could count as the answer to a
    /// later name and password.
    pub(super) fn authenticated(&mut self, ticket: u64, answer: CatalogResponse) {
        let id = Session::id_of(ticket);
        let Some(place) = self.clients.place_of(id) else {
            return;
        };
        let client = self.clients.get_mut(place);
        if client.is_none_or(|client| client.session.ticket() != ticket) {
            return;
        }
        let default_role = self.limits.default_role;
        let Some(mut client) = self.clients.take(place) else {
            return;
        };
        let awaited = client.session.waits;
        let held = self.note_authentication(&mut client.session, answer, default_role);
        self.clients.put_back(place, client);
        match awaited {
            Waits::Implicit | Waits::Authentication if held => {
                self.held.push((Instant::now() + PENALTY, id, awaited));
            }
            Waits::Implicit | Waits::Authentication => self.wake(id, awaited),
            Waits::Nothing | Waits::Permission | Waits::Pause | Waits::Table => {}
        }
    }

    /// Stores the result of a client's authentication. Returns whether the reply must be delayed.
    fn note_authentication(
        &mut self,
        session: &mut Session,
        answer: CatalogResponse,
        default_role: Option<RoleName>,
    ) -> bool {
        let result = match answer {
            CatalogResponse::Authenticated(result) => Some(result),
            CatalogResponse::Permission(_)
            | CatalogResponse::ServerPrivileges(_)
            | CatalogResponse::IsRole(_)
            | CatalogResponse::Entries(_)
            | CatalogResponse::Failed => None,
        };
        match (session.waits, result) {
            (Waits::Implicit, Some(Ok(authenticated))) => {
                let user = default_role.as_ref().map_or(&b""[..], RoleName::as_bytes);
                if !self.log_in(session, &authenticated, user) {
                    session.login.implicit = Implicit::Refused;
                }
                false
            }
            (Waits::Implicit, _) => {
                session.login.implicit = Implicit::Refused;
                false
            }
            (Waits::Authentication, result) => {
                session.login.authentication = Some(result.ok_or(()));
                let failed = !matches!(result, Some(Ok(_)));
                self.counters.failed_authentications += u64::from(failed);
                failed
            }
            _ => false,
        }
    }

    /// Logs the client in as this role. Returns false, and leaves the client as it was, if the role or the database has
    /// too many clients.
    pub fn log_in(
        &mut self,
        session: &mut Session,
        authenticated: &Authenticated,
        user: &[u8],
    ) -> bool {
        let count = |clients: usize| u32::try_from(clients).unwrap_or(u32::MAX);
        let others = self.others(session, authenticated);
        let has_room = |room: Option<u32>, taken| room.is_none_or(|room| count(taken) < room);
        if !has_room(authenticated.room_of_role, others.of_role)
            || !has_room(authenticated.room_of_database, others.all)
        {
            // A client that is refused keeps its former role.
            if let Some(place) = &session.place {
                let role = session.login.role.map_or(0, |role| role.to_u32());
                self.registry.set_role(place, role);
            }
            return false;
        }
        self.log_out(session);
        *self.roles.entry(authenticated.role.to_u32()).or_default() += 1;
        session.login.role = Some(authenticated.role);
        session.login.is_superuser = authenticated.is_superuser;
        session.changed = true;
        session.login.user = user.into();
        session.login.by_password = authenticated.by_password;
        session.permission = None;
        true
    }

    /// Counts the other clients for the connection limits, if any limit is set. The client itself does not count in its
    /// current role, because it gives this role up.
    fn others(&self, session: &Session, authenticated: &Authenticated) -> LoggedIn {
        let role = authenticated.role.to_u32();
        if let (Some(_), Some(place)) = (self.peers, &session.place) {
            self.registry.set_role(place, role);
            return match (authenticated.room_of_role, authenticated.room_of_database) {
                (None, None) => LoggedIn::default(),
                _ => self.registry.logged_in(place, role),
            };
        }
        let of_role = self.roles.get(&role).copied().unwrap_or(0);
        LoggedIn {
            of_role: of_role - usize::from(session.login.role == Some(authenticated.role)),
            all: self.roles.values().sum::<usize>() - usize::from(session.login.role.is_some()),
        }
    }

    /// Logs the client out, so that it has no role.
    pub fn log_out(&mut self, session: &mut Session) {
        let Some(role) = session.login.role.take() else {
            return;
        };
        session.permission = None;
        session.unfinished.flushing = Flushing::No;
        session.login.is_superuser = false;
        session.changed = true;
        if let Some(clients) = self.roles.get_mut(&role.to_u32()) {
            *clients -= 1;
            if *clients == 0 {
                self.roles.remove(&role.to_u32());
            }
        }
    }

    /// Counts again the clients of each role and the memory of all clients, after a client was lost in the middle of
    /// its turn.
    pub fn count_roles(&mut self) {
        self.roles.clear();
        for role in self
            .clients
            .iter()
            .filter_map(|client| client.session.login.role)
        {
            *self.roles.entry(role.to_u32()).or_default() += 1;
        }
        self.memory.count_anew(&self.clients);
    }

    /// Disconnects clients whose role was dropped or may no longer log in; otherwise a subscriber could read channels
    /// forever. Requests privileges that are unknown; the next call checks them.
    pub fn end_locked_out(&mut self) {
        let now = clock::now();
        let mut asked = 0;
        let mut ends: Vec<(u32, ServerPrivileges)> = Vec::new();
        for role in self.roles.keys() {
            let of_role = Oid::from_u32(*role);
            let of_role = PrivilegesOf(of_role);
            let known = self.catalog.privileges.look_up(
                &self.submitter.work_queue,
                self.number,
                of_role,
                0,
            );
            match known {
                Ok(Some(privileges)) if privileges.is_locked_out => ends.push((*role, privileges)),
                Ok(Some(privileges)) if privileges.valid_until.is_some_and(|until| until < now) => {
                    ends.push((*role, privileges));
                }
                Ok(_) => {}
                Err(NotPermitted::Asked) if asked < ASKED_AT_ONCE => asked += 1,
                Err(_) => break,
            }
        }
        if ends.is_empty() || fault::on(Fault::LockedOutStay) {
            return;
        }
        let mut places = Vec::new();
        for (place, client) in self.clients.iter_mut() {
            let session = &client.session;
            let role = session.login.role.map(|role| role.to_u32());
            let goes = ends.iter().any(|(of, privileges)| {
                Some(*of) == role && (privileges.is_locked_out || session.login.by_password)
            });
            if goes && !client.killed {
                client.killed = true;
                places.push(place);
            }
        }
        if !places.is_empty() {
            self.counters.killed += places.len() as u64;
            failure::log(format!(
                "disconnected {} clients of the Redis protocol whose roles may no longer log in",
                places.len()
            ));
        }
        places.into_iter().for_each(|place| self.enqueue(place));
    }
}
