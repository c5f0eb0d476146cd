//! Queries with a parallel plan, however small their tables are. That no worker process may be free does not
//! matter: the leader does it all then, in parallel mode.

use postgres::Client;

use crate::ask::Ask;

/// Makes the session's next queries parallel where Postgres can.
pub fn always(session: &mut Client) {
    session.run(
        "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; \
         SET min_parallel_index_scan_size = 0; SET max_parallel_workers_per_gather = 2",
    );
}

/// Whether the session's plan for a query is parallel.
pub fn is_planned(session: &mut Client, query: &str) -> bool {
    let plan = session.lines(&format!("EXPLAIN (COSTS OFF) {query}"));
    plan.iter().any(|line| line.contains("Gather"))
}
