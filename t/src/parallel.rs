//! Runs queries with a parallel plan, even on small tables. If no worker process is free, the leader does all the work
//! in parallel mode, which tests the same code.

use postgres::Client;

use crate::ask::Ask;

/// Makes the session's next queries parallel if Postgres can.
pub fn always(session: &mut Client) {
    session.run(
        "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; \
         SET min_parallel_index_scan_size = 0; SET max_parallel_workers_per_gather = 2",
    );
}

/// Returns whether the session's plan for a query is parallel.
pub fn is_planned(session: &mut Client, query: &str) -> bool {
    let plan = session.lines(&format!("EXPLAIN (COSTS OFF) {query}"));
    plan.iter().any(|line| line.contains("Gather"))
}
