//! Tests expiry by a real pg_cron: scheduled from pg_cron's own database, from another database, and on a server
//! without pg_cron.

use std::time::{Duration, Instant};

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::readme;
use pgcache_tests::refusal::refused;
use pgcache_tests::stage::Stage;
use pgcache_tests::wait::wait_until;
use postgres::Client;

const CONF: &[&str] = &[
    "shared_preload_libraries = 'pg_cron'",
    "cron.database_name = 'postgres'",
    "cron.use_background_workers = on",
    "max_worker_processes = 16",
];

/// Creates a cache with one expired entry and one live entry.
fn put_entries(session: &mut Client) {
    session.run("SELECT cache_create('swept')");
    session.run(
        "SELECT cache_set('old', '1', '1 ms', 'swept'), cache_set('new', '1', '1 hour', 'swept')",
    );
}

fn wait_until_swept(session: &mut Client) {
    let deadline = Instant::now() + Duration::from_secs(90);
    while session.holds("SELECT EXISTS (SELECT FROM swept AS pgcache_c WHERE key = 'old')") {
        assert!(Instant::now() < deadline, "pg_cron did not run in time");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(session.lines("SELECT key FROM swept AS pgcache_c"), ["new"]);
}

fn jobs(session: &mut Client) -> Vec<String> {
    session.lines("SELECT schedule, database FROM cron.job ORDER BY jobid")
}

/// Schedules a job in pg_cron's own database. The exact call depends on pg_cron's version.
fn schedule_here(session: &mut Client) -> Vec<String> {
    let seconds = session.holds(
        "SELECT string_to_array(split_part(extversion, '-', 1), '.')::int[] >= '{1,5}' \
           FROM pg_extension WHERE extname = 'pg_cron'",
    );
    let told = session.text("SELECT cache_schedule_expiry()");
    let (schedule, says) = match seconds {
        true => ("10 seconds", "10 seconds"),
        false => ("* * * * *", "every minute"),
    };
    assert!(told.contains(says), "{told}");
    let jobs = jobs(session);
    assert_eq!(jobs, [format!("{schedule}|postgres")]);
    jobs
}

/// Checks that scheduling from another database fails, with a hint that has the command for pg_cron's database.
fn schedule_elsewhere(elsewhere: &mut Client, home: &mut Client, call: &str) {
    let refusal = refused(elsewhere.try_value(call), "0A000");
    let hint = refusal.hint().expect("the hint has the command");
    let command = &hint[hint.find("SELECT").expect("the hint has the command")..];
    home.run(command);
}

/// Checks that the job's command also removes pg_cron's records of old runs of this job, and of no other job.
fn forgets_old_runs(home: &mut Client) {
    let command = home.text("SELECT command FROM cron.job");
    home.run(&command);
    home.run(
        "INSERT INTO cron.job_run_details (jobid, runid, end_time) \
         SELECT j, 1000 + 2 * j + old, now() - old * interval '2 days' \
           FROM (SELECT jobid FROM cron.job UNION VALUES (77)) AS jobs (j), (VALUES (0), (1)) AS ages (old)",
    );
    let (_, delete) = command.split_once("; ").expect("two statements");
    // Normally one run in a hundred removes the records; here every run does.
    assert!(delete.contains("0.01"), "{delete}");
    home.run(&delete.replace("0.01", "2"));
    let left = home.lines(
        "SELECT jobid = 77, end_time > now() - interval '1 day' FROM cron.job_run_details \
         WHERE runid >= 1000 ORDER BY 1, 2",
    );
    assert_eq!(left, ["f|t", "t|f", "t|t"]);
}

/// Checks that the query of docs/faq.md finds runs, and that all runs succeeded. Without preload no counter of pgcache
/// would show them.
fn runs_are_seen(home: &mut Client) {
    assert_eq!(
        home.number("SELECT count(last_sweep) FROM pgcache.stats"),
        0
    );
    let page = readme::page("docs/faq.md");
    let query = page
        .split("```text\n")
        .find(|block| block.starts_with("SELECT r.start_time"))
        .and_then(|block| block.split("```").next())
        .expect("the page has the query");
    let runs = home.lines(&format!(
        "SELECT DISTINCT status FROM ({}) AS runs",
        query.trim().trim_end_matches(';')
    ));
    assert_eq!(runs, ["succeeded"]);
}

fn change_and_remove(session: &mut Client, others: &[String]) {
    session.run("SELECT cache_schedule_expiry('*/5 * * * *')");
    assert_eq!(
        jobs(session),
        [&["*/5 * * * *|postgres".to_owned()], others].concat()
    );
    let told = session.text("SELECT cache_schedule_expiry(NULL)");
    assert!(told.contains("removed"), "{told}");
    assert_eq!(jobs(session), others);
    let told = session.text("SELECT cache_schedule_expiry(NULL)");
    assert!(told.contains("does not exist"), "{told}");
}

#[test]
fn the_real_pg_cron_expires_caches_in_its_own_and_in_other_databases() {
    if !Stage::current().cron {
        return;
    }
    let cluster = Cluster::start(CONF);
    let mut home = cluster.connect("postgres");
    home.run("CREATE EXTENSION pg_cron");
    home.run("CREATE EXTENSION pgcache");
    put_entries(&mut home);
    schedule_here(&mut home);
    forgets_old_runs(&mut home);

    let database = cluster.empty_database("");
    let mut elsewhere = database.connect();
    elsewhere.run("CREATE SCHEMA \"Odd one\"");
    elsewhere.run("CREATE EXTENSION pgcache SCHEMA \"Odd one\"");
    elsewhere.run("SET search_path = \"Odd one\", public");
    put_entries(&mut elsewhere);
    schedule_elsewhere(&mut elsewhere, &mut home, "SELECT cache_schedule_expiry()");
    let both = jobs(&mut home);
    assert_eq!(both.len(), 2);
    assert!(
        both[1].ends_with(&format!("|{}", database.name)),
        "{both:?}"
    );

    wait_until_swept(&mut home);
    wait_until_swept(&mut elsewhere);
    wait_until("pg_cron has written down a run", || {
        home.holds("SELECT EXISTS (SELECT FROM cron.job_run_details WHERE runid < 1000 AND end_time IS NOT NULL)")
    });
    home.run("DELETE FROM cron.job_run_details WHERE runid >= 1000");
    runs_are_seen(&mut home);
    change_and_remove(&mut home, &both[1..]);
    schedule_elsewhere(
        &mut elsewhere,
        &mut home,
        "SELECT cache_schedule_expiry(NULL)",
    );
    assert_eq!(jobs(&mut home), Vec::<String>::new());
}

#[test]
fn pg_cron_and_the_built_in_worker_sweep_side_by_side() {
    if !Stage::current().cron {
        return;
    }
    let both = [
        CONF,
        &[
            "shared_preload_libraries = 'pgcache,pg_cron'",
            "pgcache.expire_interval = '200ms'",
        ],
    ];
    let cluster = Cluster::start(&both.concat());
    let mut home = cluster.connect("postgres");
    home.run("CREATE EXTENSION pg_cron");
    home.run("CREATE EXTENSION pgcache");
    home.run("SELECT cache_create('swept', ttl => '1 ms')");
    schedule_here(&mut home);
    let deadline = Instant::now() + Duration::from_secs(90);
    let ran = "SELECT EXISTS (SELECT FROM cron.job_run_details WHERE end_time IS NOT NULL)";
    while !home.holds(ran) {
        assert!(Instant::now() < deadline, "pg_cron did not run in time");
        home.run(
            "SELECT cache_set('k' || i, '1', cache => 'swept') FROM generate_series(1, 1000) AS i",
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    while home.number("SELECT count(*) FROM swept AS pgcache_c") > 0 {
        assert!(Instant::now() < deadline, "rows stay");
        std::thread::sleep(Duration::from_millis(50));
    }
    let failed = "SELECT return_message FROM cron.job_run_details WHERE status = 'failed'";
    assert_eq!(home.lines(failed), Vec::<String>::new());
    assert!(!cluster.log_text().contains("could not remove"));
}

#[test]
fn without_pg_cron_scheduling_is_refused_with_a_way_out() {
    let mut session = Cluster::shared().database().connect();
    for call in [
        "SELECT cache_schedule_expiry()",
        "SELECT cache_schedule_expiry(NULL)",
    ] {
        let refusal = refused(session.try_value(call), "0A000");
        let hint = refusal.hint().expect("there is a hint");
        assert!(
            hint.contains("its worker removes expired entries"),
            "{hint}"
        );
        assert!(hint.contains("cache_expire"), "{hint}");
    }
}
