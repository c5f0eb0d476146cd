//! FLUSHALL of several databases: of none, where the role may not clear one of them. From the first piece
//! on nobody finds an entry of any; the memory is given back in pieces between which others have their
//! turn.

use pgcache_resp::{Command, Writer};

use super::admission::{self, Step};
use super::commands;
use super::session::Session;
use super::shared::Core;

/// Whether a command is one, of several databases.
pub fn is_meant(core: &Core, session: &Session, command: &Command<'_>) -> bool {
    let of_all = matches!(
        command,
        Command::Clear {
            all_databases: true
        }
    );
    of_all && (core.decisions.databases() > 1 || !session.to_clear.is_empty())
}

/// Begins it, or does the next piece.
pub fn run(
    core: &mut Core,
    session: &mut Session,
    command: &Command<'_>,
    replies: &mut Writer,
) -> Step {
    let before = replies.as_bytes().len();
    let Some((continuation, decided)) = session.continued.take() else {
        return begin(core, session, command, replies);
    };
    let (target, state) = (&decided.target, &mut session.state);
    match commands::go_on(continuation, command, target, state, core.now, replies) {
        commands::Step::More(continuation) => session.continued = Some((continuation, decided)),
        commands::Step::Done if session.to_clear.is_empty() => return Step::Done,
        commands::Step::Done => session.continued = session.to_clear.pop(),
        commands::Step::Undecided | commands::Step::NotOurs | commands::Step::Table => {
            session.to_clear.clear();
            commands::write_gone(replies);
            return Step::Done;
        }
    }
    replies.rewind(before);
    Step::More
}

fn begin(
    core: &mut Core,
    session: &mut Session,
    command: &Command<'_>,
    replies: &mut Writer,
) -> Step {
    let mut all = Vec::new();
    for database in 0..core.decisions.databases() as u32 {
        match admission::decided_in(core, session, database, replies) {
            Ok(decided) => all.push(decided),
            Err(step) => return step,
        }
    }
    if all.iter().any(|decided| decided.target.is_table()) {
        commands::write_table(replies);
        return Step::Done;
    }
    // One that may not be cleared comes first, with its error.
    all.sort_by_key(|decided| decided.target.rights.truncate);
    let before = replies.as_bytes().len();
    for decided in all {
        replies.rewind(before);
        let (target, state) = (&decided.target, &mut session.state);
        match commands::run(command, target, state, core.now, replies) {
            commands::Step::More(continuation) => session.to_clear.push((continuation, decided)),
            commands::Step::Done if decided.target.rights.truncate => {}
            commands::Step::Done => return Step::Done,
            commands::Step::Undecided | commands::Step::NotOurs | commands::Step::Table => {
                session.to_clear.clear();
                commands::write_gone(replies);
                return Step::Done;
            }
        }
    }
    session.continued = session.to_clear.pop();
    match session.continued {
        None => Step::Done,
        Some(_) => {
            replies.rewind(before);
            Step::More
        }
    }
}
