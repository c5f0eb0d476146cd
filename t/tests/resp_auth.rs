//! Tests that the Redis protocol admits exactly the clients that Postgres' own protocol admits. For each of many
//! pg_hba.conf files, each client tries both protocols, and the results are compared.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use std::time::{Duration, Instant};

use pgcache_tests::ask::Ask;
use pgcache_tests::resp::{CACHE, Client, Door, Reply, free_port};
use pgcache_tests::wait::wait_until;
use postgres::{Config, NoTls};

/// The transport and address through which a client connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Socket,
    V4,
    V6,
}

/// A server that accepts both protocols on all addresses.
struct Gates {
    door: Door,
    port: u16,
    ways: Vec<Way>,
}

/// Whether a client was admitted, or the message of the refusal.
type Outcome = Result<(), String>;

impl Gates {
    fn open() -> Gates {
        let port = free_port();
        let mut ways = vec![Way::Socket, Way::V4];
        let mut addresses = "127.0.0.1".to_owned();
        if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
            ways.push(Way::V6);
            addresses.push_str(", ::1");
        }
        let door = Door::fresh(&[
            &format!("port = {port}"),
            &format!("listen_addresses = '{addresses}'"),
            &format!("pgcache.resp_listen_addresses = '{addresses}'"),
        ]);
        door.cluster.up();
        let gates = Gates { door, port, ways };
        gates.superuser().run(&format!(
            "CREATE EXTENSION pgcache;
             SELECT cache_create('{CACHE}', storage => 'memory', value_type => 'bytea')"
        ));
        gates
    }

    fn superuser(&self) -> postgres::Client {
        let mut config = self.config(Way::Socket);
        config.user("postgres").connect(NoTls).unwrap()
    }

    fn config(&self, way: Way) -> Config {
        let mut config = Config::new();
        config.port(self.port).dbname("postgres");
        match way {
            Way::Socket => config.host_path(&self.door.cluster.folder),
            Way::V4 => config.host("127.0.0.1"),
            Way::V6 => config.host("::1"),
        };
        config
    }

    /// Returns whether Postgres' own protocol admits the role.
    fn by_sql(&self, way: Way, role: &str, password: &str) -> Outcome {
        let mut config = self.config(way);
        let session = config.user(role).password(password).connect(NoTls);
        session.map(drop).map_err(|error| format!("{error:?}"))
    }

    fn client(&self, way: Way) -> Client {
        match way {
            Way::Socket => self.door.client(),
            Way::V4 => self.door.tcp_at(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            Way::V6 => self.door.tcp_at(IpAddr::V6(Ipv6Addr::LOCALHOST)),
        }
    }

    /// Returns whether the Redis protocol admits the role.
    fn by_resp(&self, way: Way, role: &str, password: &str) -> Outcome {
        match self.client(way).ask(&["AUTH", role, password]) {
            Reply::Status(_) => Ok(()),
            other => Err(other.error()),
        }
    }

    /// Writes both files, and waits until both protocols use them. The first line of the new pg_hba.conf admits a new
    /// role over the socket. Once the role is admitted, the files are in use.
    fn judge_by(&self, number: usize, hba: &str, ident: &str) {
        let marker = format!("marker_{number}");
        self.superuser().run(&format!("CREATE ROLE {marker} LOGIN"));
        let hba = format!("local all postgres trust\nlocal all {marker} trust\n{hba}\n");
        self.write("pg_hba.conf", &hba);
        self.write("pg_ident.conf", ident);
        self.reload();
        wait_until("the files are read", || {
            self.by_sql(Way::Socket, &marker, "").is_ok()
                && self.by_resp(Way::Socket, &marker, "x").is_ok()
        });
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.door.cluster.folder.join("data").join(name), text).unwrap();
    }

    fn reload(&self) {
        self.superuser().run("SELECT pg_reload_conf()");
    }

    fn log(&self) -> String {
        self.door.cluster.log_text()
    }
}

/// Roles of every kind. All roles with a password have the same password.
const ROLES: &str = "
    SET password_encryption = 'scram-sha-256';
    CREATE ROLE r_group;
    CREATE ROLE r_between IN ROLE r_group;
    CREATE ROLE r_scram LOGIN PASSWORD 'right';
    CREATE ROLE r_member LOGIN PASSWORD 'right' IN ROLE r_between;
    CREATE ROLE r_super SUPERUSER LOGIN PASSWORD 'right';
    CREATE ROLE r_none LOGIN;
    CREATE ROLE r_nologin PASSWORD 'right';
    CREATE ROLE r_expired LOGIN PASSWORD 'right' VALID UNTIL '2000-01-01';
    CREATE ROLE r_valid LOGIN PASSWORD 'right' VALID UNTIL '2900-01-01';
    CREATE ROLE \"R Odd\" LOGIN PASSWORD 'right';
    CREATE ROLE \"all\" LOGIN PASSWORD 'right';
    CREATE ROLE \"+r_group\" LOGIN PASSWORD 'right';
    CREATE ROLE postgres_member LOGIN PASSWORD 'right' IN ROLE postgres;
    SET password_encryption = 'md5';
    CREATE ROLE r_md5 LOGIN PASSWORD 'right';";

const CLIENTS: &[(&str, &str)] = &[
    ("r_scram", "right"),
    ("r_scram", "wrong"),
    ("r_scram", ""),
    ("r_member", "right"),
    ("r_super", "right"),
    ("r_none", "right"),
    ("r_nologin", "right"),
    ("r_expired", "right"),
    ("r_valid", "right"),
    ("R Odd", "right"),
    ("all", "right"),
    ("+r_group", "right"),
    ("postgres_member", "right"),
    ("r_md5", "right"),
    ("r_md5", "wrong"),
    ("nobody", "right"),
];

/// Files of every kind: pg_hba.conf, pg_ident.conf, and the first Postgres version that can read them.
const FILES: &[(&str, &str, u32)] = &[
    ("local all all trust\nhost all all all trust", "", 15),
    (
        "local all all scram-sha-256\nhost all all all scram-sha-256",
        "",
        15,
    ),
    ("local all all md5\nhost all all samehost md5", "", 15),
    (
        "local all all password\nhost all all samenet password",
        "",
        15,
    ),
    ("local all all reject\nhost all all all trust", "", 15),
    // The first matching line decides, and later lines do not count.
    (
        "host all r_scram 127.0.0.1/32 reject\nhost all all 127.0.0.1 255.255.255.255 trust\n\
         host all all ::/0 scram-sha-256\nlocal all r_member,r_md5 scram-sha-256\nlocal all all trust",
        "",
        15,
    ),
    // `+` matches direct and indirect members of the role. A superuser does not count as a member.
    (
        "local all +r_group trust\nhost all +r_group 127.0.0.0/8 scram-sha-256\nhost all +nogroup all trust",
        "",
        15,
    ),
    // A quoted keyword is a name.
    (
        "local all \"all\" trust\nhost all \"+r_group\" all trust\nhost \"sameuser\" all all trust",
        "",
        15,
    ),
    // A name in another case, or a truncated name, is a different name.
    (
        "local all R_SCRAM,r_scra,r_scram2 trust\nhost all \"R Odd\" all trust\nhost POSTGRES all all trust",
        "",
        15,
    ),
    (
        "local sameuser all trust\nlocal samerole all trust\nhost replication all all trust\n\
         host template1,postgres r_md5 all trust",
        "",
        15,
    ),
    (
        "hostssl all all all trust\nhostgssenc all all all trust\nhostnossl all r_scram all scram-sha-256\n\
         hostnogssenc all all all trust",
        "",
        15,
    ),
    // A line for another network does not match this machine, and a netmask need not be contiguous.
    (
        "host all all 10.0.0.0/8 trust\nhost all all 127.0.0.0 255.0.0.255 trust\nhost all r_scram 127.0.0.1/32 trust\n\
         host all r_md5 ::1/128 trust",
        "",
        15,
    ),
    // Lines can have host names.
    (
        "host all r_scram localhost trust\nhost all r_md5 .localhost trust\nhost all all LOCALHOST scram-sha-256",
        "",
        15,
    ),
    // A line is not skipped if the Redis protocol cannot use its method.
    ("host all all all ident\nhost all all all trust", "", 15),
    ("local all all peer", "", 15),
    ("local all all ident map=m", "m {me} r_scram", 15),
    (
        "local all all peer map=m",
        "other {me} r_md5\nm nobody r_md5\nm /^{me}$ r_scram\nm /^(.)(.*)$ \"r_none\"",
        15,
    ),
    // The text that the expression matches replaces the first \1.
    (
        "local all all peer map=m",
        "m /^{head}(.*)$ {head}\\1\nm /^(.*)$ r_\\1",
        15,
    ),
    ("local all all peer map=none", "m {me} r_scram", 15),
    (
        "local all @names.list trust\nhost all all all reject",
        "",
        15,
    ),
    (
        "local all /^r_.*m$ trust\nlocal all \"/^r_md\" trust\nhost /^post all 127.0.0.1/32 trust\n\
         host \"/^nopost\" all all trust\nhost all /^R\\sO all trust",
        "",
        16,
    ),
    ("include more.conf\nhost all all all reject", "", 16),
    (
        "local all all peer map=m",
        "m {me} +r_group\nm {me} /^r_s",
        16,
    ),
    ("local all all peer map=m", "m {me} \"+r_group\"", 16),
    ("local all all peer map=m", "m {me} all", 15),
    (
        "local all all peer map=m",
        "m /^(.*)$ \\1\nm /^{head} all",
        16,
    ),
];

/// Files for a server that supports TLS.
const FILES_OF_TLS: &[(&str, &str, u32)] = &[
    ("hostssl all all all cert\nlocal all all trust", "", 15),
    (
        "hostssl all all all trust clientcert=verify-full\nhost all all all scram-sha-256",
        "",
        15,
    ),
];

fn me() -> String {
    let output = std::process::Command::new("id")
        .arg("-un")
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn files_admit_the_same_clients_as_by_sql() {
    let gates = Gates::open();
    let me = me();
    let head: String = me.chars().take(1).collect();
    let mut session = gates.superuser();
    session.run(ROLES);
    if me != "postgres" {
        session.run(&format!("CREATE ROLE \"{me}\" LOGIN"));
    }
    gates.write("names.list", "r_scram, \"all\"\n+r_between\n");
    gates.write(
        "more.conf",
        "local all r_md5 trust\nhost all all 127.0.0.1/32 trust\n",
    );
    let major = gates.door.cluster.stage.major();
    let mut clients = CLIENTS.to_vec();
    clients.push((&me, "right"));
    let (mut let_in, mut tried) = (0, 0);
    let mut files = FILES.to_vec();
    if !session.text("SHOW ssl_library").is_empty() {
        files.extend(FILES_OF_TLS);
    }
    for (number, (hba, ident, since)) in files.into_iter().enumerate() {
        if major < since {
            continue;
        }
        let ident = ident.replace("{me}", &me).replace("{head}", &head);
        gates.judge_by(number, hba, &ident);
        let mut outcomes = Vec::new();
        std::thread::scope(|scope| {
            let tries: Vec<_> = gates
                .ways
                .iter()
                .flat_map(|&way| {
                    clients
                        .iter()
                        .map(move |&(role, password)| (way, role, password))
                })
                .map(|(way, role, password)| {
                    let gates = &gates;
                    scope.spawn(move || {
                        let by_sql = gates.by_sql(way, role, password);
                        let by_resp = gates.by_resp(way, role, password);
                        ((way, role, password), by_sql, by_resp)
                    })
                })
                .collect();
            outcomes.extend(tries.into_iter().map(|one| one.join().unwrap()));
        });
        for (client, by_sql, by_resp) in outcomes {
            assert_eq!(
                by_sql.is_ok(),
                by_resp.is_ok(),
                "{client:?}\nby SQL: {by_sql:?}\nby RESP: {by_resp:?}\n{hba}\n-- map\n{ident}\n{}",
                gates.log()
            );
            tried += 1;
            let_in += usize::from(by_sql.is_ok());
        }
    }
    assert!(let_in > tried / 10, "{let_in} of {tried} were let in");
}

#[test]
fn a_file_with_a_fault_changes_nothing() {
    let gates = Gates::open();
    gates.superuser().run(ROLES);
    gates.judge_by(1, "local all r_scram trust", "");
    for (hba, ident) in [
        ("local all r_md5 trust\nlocal all all nonsense\n", ""),
        ("", ""),
        (
            "local all r_scram trust\nlocal all r_md5 peer map=m\n",
            "m {\n",
        ),
    ] {
        let complaints = || {
            gates
                .log()
                .matches("could not reload the authentication rules")
                .count()
        };
        let seen = complaints();
        gates.write("pg_hba.conf", hba);
        gates.write("pg_ident.conf", ident);
        gates.reload();
        wait_until("the fault is reported", || complaints() > seen);
        assert_eq!(gates.by_resp(Way::Socket, "r_scram", "x"), Ok(()), "{hba}");
        assert!(
            gates.by_resp(Way::Socket, "r_md5", "right").is_err(),
            "{hba}"
        );
    }
}

/// Starts a server whose network clients need a password.
fn with_passwords() -> Gates {
    let gates = Gates::open();
    gates.superuser().run(ROLES);
    gates.judge_by(0, "host all all all scram-sha-256", "");
    gates
}

const WRONG: &str = "WRONGPASS invalid username-password pair or user is disabled.";

#[test]
fn changes_of_a_role_or_its_password_count_at_once() {
    let gates = with_passwords();
    let mut session = gates.superuser();
    let as_role = |password| gates.by_resp(Way::V4, "r_scram", password);
    let wrong = Err(WRONG.to_owned());
    // Check each password twice: the second result comes from the cache of passwords.
    for _ in 0..2 {
        assert_eq!(as_role("right"), Ok(()));
    }
    session.run("ALTER ROLE r_scram PASSWORD 'other'");
    assert_eq!(as_role("right"), wrong);
    for _ in 0..2 {
        assert_eq!(as_role("other"), Ok(()));
    }
    session.run("ALTER ROLE r_scram VALID UNTIL '2000-01-01'");
    assert_eq!(as_role("other"), wrong);
    session.run("ALTER ROLE r_scram VALID UNTIL 'infinity'");
    assert_eq!(as_role("other"), Ok(()));
    session.run("ALTER ROLE r_scram NOLOGIN");
    assert_eq!(as_role("other"), wrong);
    session.run("ALTER ROLE r_scram LOGIN PASSWORD NULL");
    assert_eq!(as_role("other"), wrong);
    session.run("ALTER ROLE r_scram PASSWORD 'other'");
    assert_eq!(as_role("other"), Ok(()));
    session.run("DROP ROLE r_scram");
    assert_eq!(as_role("other"), wrong);
    session.run("CREATE ROLE r_scram LOGIN PASSWORD 'new'");
    assert_eq!(as_role("other"), wrong);
    assert_eq!(as_role("new"), Ok(()));
    session.run("REVOKE CONNECT ON DATABASE postgres FROM PUBLIC");
    assert_eq!(
        as_role("new"),
        Err("DENIED this role may not connect to the database".to_owned())
    );
    session.run("GRANT CONNECT ON DATABASE postgres TO r_scram");
    assert_eq!(as_role("new"), Ok(()));
}

#[test]
fn a_verified_pair_is_known_without_the_work() {
    let gates = with_passwords();
    let mut session = gates.superuser();
    if gates.door.cluster.stage.major() < 16 {
        return; // without scram_iterations a verification is too fast to measure
    }
    session.run("SET scram_iterations = 500000; CREATE ROLE slow LOGIN PASSWORD 'right'");
    let time = |password| {
        let start = Instant::now();
        let outcome = gates.by_resp(Way::V4, "slow", password);
        (outcome.is_ok(), start.elapsed())
    };
    let (in_first, first) = time("right");
    let (in_again, again) = time("right");
    assert!(in_first && in_again);
    assert!(again < first / 4, "{first:?}, then {again:?}");
    // A wrong password takes as long as the right one, and does not replace it in the cache of passwords.
    assert!(!time("wrong").0);
    assert!(time("right").1 < first / 4);
}

#[test]
fn no_message_has_a_password_or_the_name_of_an_unknown_role() {
    let gates = with_passwords();
    for (role, password) in [
        ("r_scram", "a-wrong-secret"),
        ("typed-secret-in-the-wrong-field", "a-wrong-secret"),
        ("r_md5", "a-wrong-secret"),
        ("r_scram", "right"),
    ] {
        let _ = gates.by_resp(Way::V4, role, password);
    }
    let log = gates.log();
    assert!(
        log.contains("as role \"r_scram\": the authentication failed"),
        "{log}"
    );
    for secret in ["a-wrong-secret", "typed-secret"] {
        assert!(!log.contains(secret), "{log}");
    }
}

/// Returns a client that has authenticated as the role.
fn came_in(gates: &Gates, role: &str) -> Client {
    let mut client = gates.client(Way::V4);
    assert_eq!(client.ask(&["AUTH", role, "right"]), Reply::status("OK"));
    client
}

fn refused(client: &mut Client, words: &[&str]) -> Option<String> {
    match client.ask(words) {
        Reply::Error(words) => Some(words),
        _ => None,
    }
}

/// Commands, each with a SQL call that has the same effect.
const SAME: &[(&[&str], &str)] = &[
    (
        &["GET", "k"],
        "SELECT cache_get_bytes('k', cache => 'public.door')",
    ),
    (
        &["SET", "k", "v"],
        "SELECT cache_set_bytes('k', 'v', cache => 'public.door')",
    ),
    (&["DEL", "k"], "SELECT cache_delete('k', 'public.door')"),
    (
        &["GETDEL", "k"],
        "SELECT cache_take_bytes('k', cache => 'public.door')",
    ),
    (&["FLUSHDB"], "SELECT cache_clear('public.door')"),
];

#[test]
fn a_role_has_the_same_privileges_as_by_sql() {
    let gates = with_passwords();
    let mut session = gates.superuser();
    session.run(
        "CREATE ROLE r_owner LOGIN PASSWORD 'right'; ALTER VIEW public.door OWNER TO r_owner;
         CREATE ROLE r_reader LOGIN PASSWORD 'right' IN ROLE pg_read_all_data;
         CREATE ROLE r_heir LOGIN PASSWORD 'right' IN ROLE r_owner;
         CREATE ROLE r_no_heir LOGIN PASSWORD 'right' NOINHERIT;
         GRANT r_owner TO r_no_heir",
    );
    if gates.door.cluster.stage.major() >= 16 {
        session.run("GRANT r_owner TO r_no_heir WITH INHERIT FALSE");
    }
    let compare = |role: &str, what: &str, client: &mut Client| {
        let mut config = gates.config(Way::V4);
        let mut by_sql = config.user(role).password("right").connect(NoTls).unwrap();
        for (command, call) in SAME {
            let by_sql = by_sql.try_lines(call).err();
            let by_resp = refused(client, command);
            assert_eq!(
                by_sql.is_some(),
                by_resp.is_some(),
                "{what}\n{command:?}: {by_resp:?}\n{call}: {by_sql:?}"
            );
            assert!(by_resp.is_none_or(|words| words.starts_with("NOPERM ")));
        }
    };
    for role in [
        "r_owner",
        "r_reader",
        "r_heir",
        "r_no_heir",
        "r_super",
        "r_none_at_all",
    ] {
        if role == "r_none_at_all" {
            session.run("CREATE ROLE r_none_at_all LOGIN PASSWORD 'right'");
        }
        compare(role, role, &mut came_in(&gates, role));
    }
    // Test every set of privileges. The client stays connected, so each change must take effect at once.
    const ALL: [&str; 5] = ["SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE"];
    let mut client = came_in(&gates, "r_scram");
    for set in 0..1 << ALL.len() {
        let granted = |&at: &usize| set >> at & 1 == 1;
        let words: Vec<_> = (0..ALL.len()).filter(granted).map(|at| ALL[at]).collect();
        session.run("REVOKE ALL ON public.door FROM r_scram");
        if !words.is_empty() {
            session.run(&format!(
                "GRANT {} ON public.door TO r_scram",
                words.join(", ")
            ));
        }
        compare("r_scram", &words.join(" "), &mut client);
    }
    assert_eq!(refused(&mut client, &["GET", "k"]), None);
    // Without USAGE on the schema, SQL cannot name the cache, so the protocol refuses the client, too.
    session.run("REVOKE USAGE ON SCHEMA public FROM PUBLIC");
    assert!(refused(&mut client, &["GET", "k"]).is_some_and(|words| words.starts_with("NOPERM ")));
    session.run("GRANT USAGE ON SCHEMA public TO r_scram");
    assert_eq!(refused(&mut client, &["GET", "k"]), None);
    // Grant a privilege through a membership, and then revoke the membership.
    session.run(
        "REVOKE ALL ON public.door FROM r_scram; GRANT SELECT ON public.door TO r_group; GRANT r_group TO r_scram",
    );
    assert_eq!(refused(&mut client, &["GET", "k"]), None);
    session.run("REVOKE r_group FROM r_scram");
    assert!(refused(&mut client, &["GET", "k"]).is_some());
}

#[test]
fn a_client_whose_role_may_no_longer_log_in_gets_an_error() {
    let gates = with_passwords();
    let mut session = gates.superuser();
    for (taken, given) in [
        ("ALTER ROLE r_scram NOLOGIN", "ALTER ROLE r_scram LOGIN"),
        (
            "ALTER ROLE r_scram VALID UNTIL '2000-01-01'",
            "ALTER ROLE r_scram VALID UNTIL 'infinity'",
        ),
        (
            "REVOKE CONNECT ON DATABASE postgres FROM PUBLIC",
            "GRANT CONNECT ON DATABASE postgres TO PUBLIC",
        ),
        (
            "REVOKE ALL ON public.door FROM r_scram; DROP ROLE r_scram",
            "CREATE ROLE r_scram LOGIN PASSWORD 'right'",
        ),
    ] {
        session.run("GRANT SELECT ON public.door TO r_scram");
        let mut client = came_in(&gates, "r_scram");
        assert_eq!(client.ask(&["GET", "k"]), Reply::Null);
        session.run(taken);
        assert!(refused(&mut client, &["GET", "k"]).is_some(), "{taken}");
        // The client is disconnected although it sends nothing.
        client.wait_for_end();
        session.run(given);
    }
}

#[test]
fn connection_limits_count_clients_and_sessions() {
    let gates = with_passwords();
    let mut session = gates.superuser();
    session.run("ALTER ROLE r_scram CONNECTION LIMIT 2");
    let mut config = gates.config(Way::V4);
    let by_sql = config
        .user("r_scram")
        .password("right")
        .connect(NoTls)
        .unwrap();
    let first = came_in(&gates, "r_scram");
    let full = |gates: &Gates| gates.by_resp(Way::V4, "r_scram", "right").err();
    assert!(full(&gates).is_some_and(|words| words.starts_with("ERR too many connections")));
    // A client that authenticates again does not count twice. Another role has its own limit, and a superuser has no
    // limit.
    let mut again = first;
    assert_eq!(
        again.ask(&["AUTH", "r_scram", "right"]),
        Reply::status("OK")
    );
    assert_eq!(gates.by_resp(Way::V4, "r_member", "right"), Ok(()));
    // A client that would exceed the limit keeps its role.
    session.run("GRANT SELECT ON public.door TO r_member");
    let mut member = came_in(&gates, "r_member");
    let told = member.ask(&["AUTH", "r_scram", "right"]).error();
    assert!(told.starts_with("ERR too many connections"), "{told}");
    assert_eq!(member.ask(&["GET", "k"]), Reply::Null);
    drop(by_sql);
    wait_until("the session is gone", || full(&gates).is_none());
    // If the database's limit is 0, only superusers are admitted.
    session
        .run("ALTER ROLE r_scram CONNECTION LIMIT -1; ALTER DATABASE postgres CONNECTION LIMIT 0");
    assert!(full(&gates).is_some());
    assert_eq!(gates.by_resp(Way::V4, "r_super", "right"), Ok(()));
    session.run("ALTER DATABASE postgres CONNECTION LIMIT 100");
    assert_eq!(full(&gates), None);
}

#[test]
fn refusals_come_late_and_stall_no_client() {
    let gates = with_passwords();
    let mut session = gates.superuser();
    session.run("GRANT SELECT ON public.door TO r_member");
    if gates.door.cluster.stage.major() >= 16 {
        // Let the verification of a password take about a second. If other clients waited for it, the test would
        // notice.
        session.run("SET scram_iterations = 400000; ALTER ROLE r_scram PASSWORD 'right'");
    }
    let mut client = came_in(&gates, "r_member");
    assert_eq!(client.ask(&["GET", "k"]), Reply::Null);
    let guess = |at: usize| {
        let role = ["r_scram", "nobody", "r_md5", "r_expired"][at % 4];
        let mut guesser = gates.client(Way::V4);
        let start = Instant::now();
        assert_eq!(guesser.ask(&["AUTH", role, "a guess"]).error(), WRONG);
        let late = start.elapsed();
        assert!(late > Duration::from_millis(900), "{role}: {late:?}");
    };
    let guess = &guess;
    std::thread::scope(|scope| {
        let guessers: Vec<_> = (0..16).map(|at| scope.spawn(move || guess(at))).collect();
        let mut slowest = Duration::ZERO;
        while guessers.iter().any(|guesser| !guesser.is_finished()) {
            let start = Instant::now();
            assert_eq!(client.ask(&["GET", "k"]), Reply::Null);
            slowest = slowest.max(start.elapsed());
        }
        assert!(slowest < Duration::from_millis(600), "{slowest:?}");
    });
    assert_eq!(gates.by_resp(Way::V4, "r_scram", "right"), Ok(()));
}

/// Returns an address of this machine outside its loopback network, or None if the machine has no network.
fn outer_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // This sends nothing: connecting a UDP socket only looks up the route.
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

#[test]
fn a_password_does_not_pass_the_network_as_it_is() {
    let Some(address) = outer_address() else {
        return; // no network
    };
    let gates = with_passwords();
    let listen = format!("pgcache.resp_listen_addresses = '127.0.0.1, {address}'");
    gates.door.cluster.configure(&[&listen]);
    gates
        .door
        .cluster
        .restart(pgcache_tests::cluster::Shutdown::Fast);
    let ask = || {
        gates
            .door
            .tcp_at(address)
            .ask(&["AUTH", "r_scram", "right"])
    };
    // The client is refused before the check of the password, so a wrong password gets the same answer.
    let wrong = gates
        .door
        .tcp_at(address)
        .ask(&["AUTH", "r_scram", "wrong"]);
    let words = ask().error();
    assert!(words.contains("pgcache.resp_cleartext"), "{words}");
    assert_eq!(wrong.error(), words);
    gates
        .door
        .cluster
        .configure(&["pgcache.resp_cleartext = on"]);
    gates.reload();
    wait_until("the setting is read", || ask() == Reply::status("OK"));
}

#[test]
fn unauthenticated_clients_are_the_default_role_where_trusted() {
    let gates = with_passwords();
    // Over the socket postgres is trusted, over the network it needs its password.
    assert_eq!(gates.client(Way::Socket).ask(&["GET", "k"]), Reply::Null);
    for words in [["GET", "k"].as_slice(), &["SET", "k", "v"], &["DBSIZE"]] {
        let told = gates.client(Way::V4).ask(words).error();
        assert_eq!(told, "NOAUTH Authentication required.");
    }
    // `default`, and a password alone, mean the default role.
    gates
        .superuser()
        .run("SET password_encryption = 'scram-sha-256'; ALTER ROLE postgres PASSWORD 'right'");
    for words in [["AUTH", "right"].as_slice(), &["AUTH", "default", "right"]] {
        let mut client = gates.client(Way::V4);
        assert_eq!(client.ask(words), Reply::status("OK"));
        assert_eq!(client.ask(&["GET", "k"]), Reply::Null);
        // A client whose authentication fails keeps its role.
        assert_eq!(client.ask(&["AUTH", "default", "wrong"]).error(), WRONG);
        assert_eq!(client.ask(&["GET", "k"]), Reply::Null);
    }
}
