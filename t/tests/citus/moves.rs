//! Tests that no stored value is lost while Citus moves shards.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use pgcache_tests::ask::Ask;
use pgcache_tests::refusal::sqlstate;
use postgres::Client;

use super::spread::cluster;

/// The number of shards to move, one after the other.
const MOVES: usize = 12;

/// Moves one shard, and the shards co-located with it, to another node.
fn move_one(session: &mut Client, number: usize) -> Result<Vec<String>, postgres::Error> {
    // Choose the shard and its target in a separate query: in one query, Postgres could call the volatile function also
    // for rows that the query then discards.
    let way = session.text(&format!(
        "SELECT format('%s, %L, %s, %L, %s', s.shardid, s.nodename, s.nodeport, n.nodename, n.nodeport)
           FROM (SELECT * FROM citus_shards WHERE table_name = 'counted'::regclass ORDER BY shardid OFFSET {} LIMIT 1) AS s,
                pg_dist_node AS n
          WHERE n.nodename <> s.nodename ORDER BY n.nodeid OFFSET {} LIMIT 1",
        number % 8,
        number % 2
    ));
    session.try_lines(&format!(
        "SELECT citus_move_shard_placement({way}, 'block_writes')"
    ))
}

/// Returns whether the error is a deadlock. Postgres or Citus may abort a transaction if it and a shard move wait for
/// each other.
fn is_deadlock(error: &postgres::Error) -> bool {
    sqlstate(error) == "40P01"
}

/// Increments counters until `over`. Returns the number of increments that succeeded.
fn count(session: &mut Client, over: &AtomicBool) -> usize {
    let (mut tries, mut done) = (0, 0);
    while !over.load(Relaxed) {
        let (key, next) = (tries % 40, (tries + 1) % 40);
        let block = tries % 4 == 0;
        let counted = match block {
            true => session.try_lines(&format!(
                "BEGIN; SELECT cache_incr('n{key}', cache => 'counted'), cache_get('n{next}', 'counted'); COMMIT"
            )),
            false => session.try_lines(&format!("SELECT cache_incr('n{key}', cache => 'counted')")),
        };
        match counted {
            Ok(_) => done += 1,
            Err(error) if is_deadlock(&error) => session.run("ROLLBACK"),
            Err(error) => {
                over.store(true, Relaxed);
                panic!("{error:?}");
            }
        }
        tries += 1;
    }
    done
}

/// Until `over`, lists the keys with one prefix and reads those 60 keys in one call. Returns the number of these reads.
fn read(session: &mut Client, over: &AtomicBool) -> usize {
    let mut done = 0;
    while !over.load(Relaxed) {
        for all in [
            "SELECT count(*) FROM cache_keys('m', max_rows => 100, cache => 'counted')",
            "SELECT count(*) FROM cache_get_many(ARRAY(SELECT 'm' || i FROM generate_series(1, 60) AS i), 'counted') AS found WHERE found IS NOT NULL",
        ] {
            match session.try_lines(all) {
                Ok(found) => {
                    if found != ["60"] {
                        over.store(true, Relaxed);
                        panic!("{all}: {found:?}");
                    }
                    done += 1;
                }
                Err(error) if is_deadlock(&error) => {}
                Err(error) => {
                    over.store(true, Relaxed);
                    panic!("{error:?}");
                }
            }
        }
    }
    done
}

#[test]
#[ignore = "needs Citus: make citus-check"]
fn counters_are_right_while_shards_move() {
    let (nodes, mut sessions) = cluster();
    sessions[0].run("SELECT cache_create('counted'); SELECT cache_distribute('counted')");
    sessions[0].run(
        "SELECT cache_set('m' || i, '0', cache => 'counted') FROM generate_series(1, 60) AS i",
    );
    let over = AtomicBool::new(false);
    let (counted, moved) = thread::scope(|scope| {
        let begin = |at: usize| {
            let mut session = nodes[at % 3].connect("postgres");
            let over = &over;
            scope.spawn(move || count(&mut session, over))
        };
        let counting: Vec<_> = (0..6).map(begin).collect();
        let begin = |at: usize| {
            let mut session = nodes[at].connect("postgres");
            let over = &over;
            scope.spawn(move || read(&mut session, over))
        };
        let reading: Vec<_> = (0..2).map(begin).collect();
        let mut moved = 0;
        for number in 0..MOVES {
            if over.load(Relaxed) {
                break;
            }
            match move_one(&mut sessions[0], number) {
                Ok(_) => moved += 1,
                Err(error) => println!("not moved: {error:?}"),
            }
        }
        over.store(true, Relaxed);
        for reader in reading {
            assert!(reader.join().unwrap() > 10);
        }
        let counted: usize = counting.into_iter().map(|one| one.join().unwrap()).sum();
        (counted, moved)
    });
    assert!(
        counted > 100 && moved > MOVES / 2,
        "{counted}, {moved} moves"
    );
    for session in &mut sessions {
        assert_eq!(
            session.number("SELECT sum(value::int) FROM counted") as usize,
            counted
        );
        assert_eq!(
            session.lines("SELECT * FROM pgcache.verify('counted')"),
            [""; 0]
        );
        assert_eq!(session.number("SELECT count(*) FROM pg_prepared_xacts"), 0);
    }
}
