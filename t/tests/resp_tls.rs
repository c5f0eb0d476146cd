//! Tests the Redis protocol over TLS: plain and encrypted clients on one port, client certificates, which must give the
//! same access as over the Postgres protocol, key files that change, and bytes that a stranger sends instead of a
//! handshake.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Shutdown;
use pgcache_tests::keys::Keys;
use pgcache_tests::resp::{CACHE, Client, Door, Reply, free_port};
use pgcache_tests::wait::wait_until;
use rustls::ClientConfig;

const HOME: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Starts a server with a certificate, an authority for clients' certificates, and a memory cache.
fn door(conf: &[&str]) -> (Door, Keys) {
    let door = Door::fresh(&[]);
    let keys = Keys::beside(door.cluster);
    let settings = keys.settings();
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    door.cluster.configure(&settings);
    door.cluster.configure(&["pgcache.resp_tls = on"]);
    door.cluster.configure(conf);
    door.cluster.up();
    door.cluster.connect("postgres").run(&format!(
        "CREATE EXTENSION pgcache;
         SELECT cache_create('{CACHE}', storage => 'memory', value_type => 'bytea')"
    ));
    // Once a client is admitted without TLS, the network process is listening.
    let mut first = door.tcp();
    while first.ask_if_open(&["PING"]).is_none() && !conf.contains(&"pgcache.resp_tls = required") {
        first = door.tcp();
    }
    (door, keys)
}

fn connect(door: &Door, config: &Arc<ClientConfig>) -> Client {
    door.try_tls(HOME, config).unwrap_or_else(|error| {
        panic!("{error}\n{}", door.cluster.log_text());
    })
}

#[test]
fn one_port_takes_both_kinds() {
    let (door, keys) = door(&[
        "pgcache.hot_size = '256MB'",
        "pgcache.hot_max_value = '20MB'",
    ]);
    let mut encrypted = connect(&door, &keys.client(None));
    let mut plain = door.tcp();
    assert_eq!(encrypted.ask(&["SET", "k", "v"]), Reply::status("OK"));
    assert_eq!(plain.ask(&["GET", "k"]), Reply::bulk("v"));
    assert_eq!(door.client().ask(&["GET", "k"]), Reply::bulk("v"));
    // This value is longer than any buffer between client and server.
    let long: Vec<u8> = (0..10_000_000_u32).map(|at| (at % 251) as u8).collect();
    assert_eq!(
        encrypted.ask_bytes(&[b"SET", b"long", &long]),
        Reply::status("OK")
    );
    assert_eq!(encrypted.ask(&["GET", "long"]), Reply::Bulk(long.clone()));
    assert_eq!(plain.ask(&["GET", "long"]), Reply::Bulk(long));
    // Send a pipeline, and requests that are split at each byte, with each piece in its own TLS record.
    let one = Client::request(&[b"INCR", b"n"]);
    assert!(encrypted.send(&one.repeat(2000)));
    for at in 1..=2000 {
        assert_eq!(encrypted.reply(), Some(Reply::Integer(at)));
    }
    for (at, cut) in (1..one.len()).enumerate() {
        assert!(encrypted.send(&one[..cut]));
        assert!(encrypted.send(&one[cut..]));
        assert_eq!(encrypted.reply(), Some(Reply::Integer(2001 + at as i64)));
    }
    // The server also recognizes an inline request by its first byte.
    let mut inline = door.tcp();
    assert!(inline.send(b"P"));
    std::thread::sleep(Duration::from_millis(50));
    assert!(inline.send(b"ING\r\n"));
    assert_eq!(inline.reply(), Some(Reply::status("PONG")));
    // The server answers requests that arrived before the client closed its sending side.
    assert!(encrypted.send(&Client::request(&[b"GET", b"k"])));
    encrypted.half_close();
    assert_eq!(encrypted.reply(), Some(Reply::bulk("v")));
}

#[test]
fn a_client_that_does_not_read_is_cut_off_when_encrypted_too() {
    let (door, keys) = door(&["pgcache.resp_max_output = '1MB'"]);
    let mut other = door.tcp();
    assert_eq!(
        other.ask(&["SET", "k", &"x".repeat(100_000)]),
        Reply::status("OK")
    );
    let mut deaf = connect(&door, &keys.client(None));
    let chunk = Client::request(&[b"GET", b"k"]).repeat(100);
    let deadline = Instant::now() + Duration::from_secs(60);
    while deaf.send(&chunk) && Instant::now() < deadline {}
    assert!(Instant::now() < deadline, "it was never cut off");
    assert_eq!(other.ask(&["PING"]), Reply::status("PONG"));
}

#[test]
fn where_tls_is_required_plain_requests_get_an_error() {
    let (door, keys) = door(&["pgcache.resp_tls = required"]);
    for words in [
        b"PING\r\n".as_slice(),
        &Client::request(&[b"SET", b"k", b"v"]),
    ] {
        let mut plain = door.tcp();
        assert!(plain.send(words));
        let told = plain.reply().unwrap().error();
        assert!(told.contains("TLS"), "{told}");
        assert_eq!(plain.reply(), None);
    }
    assert_eq!(door.client().ask(&["PING"]), Reply::status("PONG"));
    let mut encrypted = connect(&door, &keys.client(None));
    assert_eq!(encrypted.ask(&["GET", "k"]), Reply::Null);
}

#[test]
fn off_means_off() {
    let (door, keys) = door(&["pgcache.resp_tls = off"]);
    assert!(door.try_tls(HOME, &keys.client(None)).is_err());
    assert_eq!(door.tcp().ask(&["PING"]), Reply::status("PONG"));
}

/// Contents of pg_hba.conf and pg_ident.conf.
const FILES: &[(&str, &str)] = &[
    ("hostssl all all all cert", ""),
    (
        "hostssl all all all cert map=m",
        "m r_plain r_other\nm /^(.*)@example.org$ \\1\n",
    ),
    ("hostssl all all all cert clientname=DN", ""),
    (
        "hostssl all all all cert clientname=DN map=m",
        "m \"CN=r_plain\" r_plain\n\
         m \"/^CN=r_third,OU=people,O=Good\\\\, Better,C=DE$\" r_other\n\
         m \"/^O=\\\\ x\\\\ ,CN=R \\\\C3\\\\BCmit #1$\" r_third\n\
         m \"/^emailAddress=a@b.example,(CN=m1.UID=m2|UID=m2.CN=m1),DC=x$\" r_scram\n\
         m \"CN=r_plain,CN=r_scram\" r_other\n",
    ),
    (
        "hostssl all all all trust clientcert=verify-ca\nhostnossl all all all reject",
        "",
    ),
    ("hostssl all all all trust clientcert=verify-full", ""),
    (
        "hostssl all all all scram-sha-256 clientcert=verify-full",
        "",
    ),
    ("hostssl all all all scram-sha-256 clientcert=verify-ca", ""),
    (
        "hostnossl all all all trust\nhostssl all r_scram all scram-sha-256",
        "",
    ),
    (
        "hostssl all r_plain all reject clientcert=verify-ca\nhost all all all trust",
        "",
    ),
    ("host all all all trust", ""),
];

const ROLES: &[&str] = &["r_plain", "r_other", "r_third", "r_scram"];

/// The clients' certificates: each with its name and its subject.
const SHOWN: &[(&str, &str)] = &[
    ("plain", "/CN=r_plain"),
    ("mail", "/CN=r_other@example.org"),
    ("long", "/C=DE/O=Good, Better/OU=people/CN=r_third"),
    ("umlaut", "/CN=R ümit #1/O= x "),
    ("two", "/DC=x/CN=m1+UID=m2/emailAddress=a@b.example"),
    ("twice", "/CN=r_scram/CN=r_plain"),
    ("nameless", "/O=r_plain"),
    ("gone", "/CN=r_scram"),
];

#[test]
fn a_certificate_gives_the_same_access_as_to_psql() {
    let port = free_port();
    let (door, keys) = door(&[]);
    let mut session = door.cluster.connect("postgres");
    if session.text("SHOW ssl_library").is_empty() {
        return; // this Postgres was built without TLS
    }
    for (name, subject) in SHOWN {
        keys.make(name, subject, "ca");
    }
    keys.authority("stranger");
    keys.make("foreign", "/CN=r_plain", "stranger");
    keys.revoke(&["gone"]);
    let list = format!("ssl_crl_file = '{}'", keys.path("ca.crl").display());
    let port_line = format!("port = {port}");
    let address = "listen_addresses = '127.0.0.1'";
    door.cluster
        .configure(&["ssl = on", &list, &port_line, address]);
    drop(session);
    door.cluster.restart(Shutdown::Fast);
    let mut config = postgres::Config::new();
    let config = config.port(port).dbname("postgres").user("postgres");
    let config = config.host_path(&door.cluster.folder);
    session = config.connect(postgres::NoTls).unwrap();
    session.run("SET password_encryption = 'scram-sha-256'");
    for role in ROLES {
        session.run(&format!("CREATE ROLE {role} LOGIN PASSWORD 'right'"));
    }
    let mut shown: Vec<Option<&str>> = SHOWN.iter().map(|(name, _)| Some(*name)).collect();
    shown.extend([Some("foreign"), None]);
    let data = door.cluster.folder.join("data");
    let (mut tried, mut let_in) = (0, 0);
    for (number, (hba, ident)) in FILES.iter().enumerate() {
        session.run(&format!("CREATE ROLE marker_{number} LOGIN"));
        let marker = format!("local all postgres trust\nlocal all marker_{number} trust\n");
        std::fs::write(data.join("pg_hba.conf"), marker + hba + "\n").unwrap();
        std::fs::write(data.join("pg_ident.conf"), ident).unwrap();
        session.run("SELECT pg_reload_conf()");
        let marker = format!("marker_{number}");
        wait_until("the files are read", || {
            let words = ["AUTH", &marker, "x"];
            door.try_client()
                .and_then(|mut client| client.ask_if_open(&words))
                == Some(Reply::status("OK"))
        });
        let compare = |certificate: Option<&str>| {
            let mut let_in = 0;
            for role in ROLES {
                let by_sql = psql(&door, &keys, port, certificate, role);
                let by_resp = by_resp(&door, &keys, certificate, role);
                assert_eq!(
                    by_sql.is_ok(),
                    by_resp.is_ok(),
                    "{certificate:?} as {role}\nby SQL: {by_sql:?}\nby RESP: {by_resp:?}\n{hba}\n{ident}\n{}",
                    door.cluster.log_text()
                );
                let_in += usize::from(by_sql.is_ok());
            }
            let_in
        };
        let compare = &compare;
        // A refusal is sent with a delay, so all attempts run at the same time.
        let before = let_in;
        std::thread::scope(|scope| {
            let tries: Vec<_> = shown
                .iter()
                .map(|certificate| scope.spawn(move || compare(*certificate)))
                .collect();
            for one in tries {
                tried += ROLES.len();
                let_in += one.join().unwrap();
            }
        });
        if hba.contains("clientname=DN map") {
            // Each line of the map admits one client.
            assert_eq!(let_in - before, 5, "{ident}\n{}", door.cluster.log_text());
        }
    }
    assert!(let_in > tried / 6, "{let_in} of {tried} were let in");
}

/// Returns whether psql is admitted over TLS.
fn psql(
    door: &Door,
    keys: &Keys,
    port: u16,
    certificate: Option<&str>,
    role: &str,
) -> Result<(), String> {
    let mut words = format!(
        "host=127.0.0.1 port={port} dbname=postgres user={role} password=right sslmode=verify-ca sslrootcert={}",
        keys.path("ca.crt").display()
    );
    // Name a file, because otherwise psql would use the file in the home folder.
    let name = certificate.unwrap_or("absent");
    for (word, kind) in [("sslcert", "crt"), ("sslkey", "key")] {
        let path = keys.path(&format!("{name}.{kind}"));
        words.push_str(&format!(" {word}={}", path.display()));
    }
    let mut psql = door.cluster.program("psql");
    let output = psql
        .args(["-XAtq", "-c", "SELECT 1", &words])
        .output()
        .unwrap();
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// Logs in as a Redis client over TLS. Returns the refusal as the error.
fn by_resp(door: &Door, keys: &Keys, certificate: Option<&str>, role: &str) -> Result<(), String> {
    let client = door.try_tls(HOME, &keys.client(certificate));
    let mut client = client.map_err(|error| error.to_string())?;
    match client.ask_if_open(&["AUTH", role, "right"]) {
        Some(Reply::Status(_)) => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

#[test]
fn a_certificate_alone_makes_a_client_the_default_role() {
    let (door, keys) = door(&[]);
    keys.make("known", "/CN=postgres", "ca");
    let data = door.cluster.folder.join("data");
    let mut session = door.cluster.connect("postgres");
    if session.text("SHOW ssl_library").is_empty() {
        return; // this Postgres was built without TLS
    }
    let hba = "local all all trust\nhostssl all all all cert\n";
    std::fs::write(data.join("pg_hba.conf"), hba).unwrap();
    session.run("SELECT pg_reload_conf()");
    wait_until("the file is read", || {
        matches!(door.tcp().ask_if_open(&["GET", "k"]), Some(Reply::Error(_)))
    });
    let mut known = connect(&door, &keys.client(Some("known")));
    assert_eq!(known.ask(&["SET", "k", "v"]), Reply::status("OK"));
    assert_eq!(known.ask(&["CLIENT", "GETNAME"]), Reply::Null);
    let mut unknown = connect(&door, &keys.client(None));
    let told = unknown.ask(&["GET", "k"]).error();
    assert!(told.starts_with("NOAUTH"), "{told}");
}

#[test]
fn a_new_certificate_is_shown_after_a_reload_and_a_bad_one_is_not() {
    let (door, keys) = door(&[]);
    let mut session = door.cluster.connect("postgres");
    let config = keys.client(None);
    let mut stays = connect(&door, &config);
    let first = connect(&door, &config).certificate;
    assert!(!first.is_empty());
    let complaints = || {
        door.cluster
            .log_text()
            .matches("keeps its previous TLS settings")
            .count()
    };
    for (round, (name, text)) in [
        ("server.crt", "nothing"),
        (
            "server.key",
            "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        ),
        ("ca.crt", ""),
    ]
    .into_iter()
    .enumerate()
    {
        let good = std::fs::read_to_string(keys.path(name)).unwrap();
        keys.write(name, text);
        session.run("SELECT pg_reload_conf()");
        wait_until("the fault is reported", || complaints() == round + 1);
        keys.write(name, &good);
        assert_eq!(connect(&door, &config).certificate, first);
    }
    keys.make("server", "/CN=newer", "ca");
    session.run("SELECT pg_reload_conf()");
    wait_until("the new one is shown", || {
        connect(&door, &config).certificate != first
    });
    assert_eq!(stays.ask(&["PING"]), Reply::status("PONG"));
    assert_eq!(complaints(), 3);
}

#[test]
fn unsupported_settings_are_refused_by_name() {
    let (door, keys) = door(&[]);
    keys.lock("server", "locked");
    let locked = format!("'{}'", keys.path("locked.key").display());
    let own_key = format!("'{}'", keys.path("server.key").display());
    keys.write(
        "open.key",
        &std::fs::read_to_string(keys.path("server.key")).unwrap(),
    );
    let open = format!("'{}'", keys.path("open.key").display());
    let mut session = door.cluster.connect("postgres");
    let config = keys.client(None);
    for (name, value, told) in [
        (
            "ssl_ciphers",
            "'HIGH'",
            "ssl_ciphers is supported only with its default",
        ),
        (
            "ssl_dh_params_file",
            "'x'",
            "ssl_dh_params_file is supported only with its default",
        ),
        (
            "ssl_crl_dir",
            "'x'",
            "ssl_crl_dir is supported only with its default",
        ),
        (
            "ssl_ecdh_curve",
            "'secp521r1'",
            "a group that is not supported",
        ),
        (
            "ssl_min_protocol_version",
            "'TLSv1'",
            "ssl_min_protocol_version must be",
        ),
        (
            "ssl_max_protocol_version",
            "'TLSv1.1'",
            "ssl_max_protocol_version must be",
        ),
        (
            "ssl_key_file",
            locked.as_str(),
            "ssl_passphrase_command is not supported",
        ),
        (
            "ssl_key_file",
            open.as_str(),
            "can be read or changed by other users",
        ),
        (
            "ssl_cert_file",
            "'absent'",
            "\"absent\" of ssl_cert_file cannot be read",
        ),
    ] {
        session.run(&format!("ALTER SYSTEM SET {name} = {value}"));
        session.run("SELECT pg_reload_conf()");
        wait_until(name, || door.cluster.log_text().contains(told));
        assert_eq!(
            connect(&door, &config).ask(&["PING"]),
            Reply::status("PONG")
        );
        session.run(&format!("ALTER SYSTEM RESET {name}"));
    }
    // The server applies the settings that it supports. Here they allow only the older of the two TLS versions, and
    // only one group.
    session.run("ALTER SYSTEM SET ssl_max_protocol_version = 'TLSv1.2'");
    session.run("ALTER SYSTEM SET ssl_ecdh_curve = 'secp384r1'");
    session.run(&format!("ALTER SYSTEM SET ssl_key_file = {own_key}"));
    session.run("SELECT pg_reload_conf()");
    wait_until("the version is refused", || {
        let newest =
            rustls::ClientConfig::builder_with_provider(Arc::clone(config.crypto_provider()))
                .with_protocol_versions(&[&rustls::version::TLS13])
                .unwrap()
                .with_root_certificates(rustls::RootCertStore::empty())
                .with_no_client_auth();
        let error = door.try_tls(HOME, &Arc::new(newest)).err();
        error.is_some_and(|error| error.to_string().contains("ProtocolVersion"))
    });
    assert_eq!(
        connect(&door, &config).ask(&["PING"]),
        Reply::status("PONG")
    );
    // After a start with an unsupported setting, the port serves unencrypted clients and disconnects clients that begin
    // TLS.
    session.run("ALTER SYSTEM SET ssl_ciphers = 'HIGH'");
    drop(session);
    door.cluster.restart(Shutdown::Fast);
    assert_eq!(door.tcp().ask(&["PING"]), Reply::status("PONG"));
    assert!(
        door.cluster
            .log_text()
            .contains("the Redis protocol cannot use TLS")
    );
    assert!(door.try_tls(HOME, &config).is_err());
}

#[test]
fn half_a_handshake_and_nonsense_delay_no_client() {
    let (door, keys) = door(&["pgcache.resp_authentication_timeout = 2"]);
    let mut known = door.tcp();
    assert_eq!(known.ask(&["SET", "k", "v"]), Reply::status("OK"));
    let raw = || {
        let socket = TcpStream::connect((HOME, door.port)).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        socket
    };
    let ends = |mut socket: TcpStream| {
        let mut rest = Vec::new();
        // A connection reset also counts as the end of the connection.
        let _ = socket.read_to_end(&mut rest);
        rest
    };
    // Half of the connections send the beginning of a TLS greeting, the other half sends nothing.
    let mut halves: Vec<TcpStream> = (0..200)
        .map(|at| {
            let mut socket = raw();
            let greeting = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
            socket.write_all(&greeting[..at % greeting.len()]).unwrap();
            socket
        })
        .collect();
    for length in [1, 2, 5, 100, 5_000, 200_000] {
        for seed in 0..5_u32 {
            let mut socket = raw();
            let mut state = seed.wrapping_mul(2_654_435_761) | 1;
            let mut bytes = vec![0x16];
            bytes.extend((0..length).map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            }));
            if seed % 2 == 0 {
                bytes.splice(1..1, [3, 3, 0x3f, 0xff]);
            }
            let _ = socket.write_all(&bytes);
            halves.push(socket);
        }
        assert_eq!(known.ask(&["GET", "k"]), Reply::bulk("v"));
    }
    // While these connections wait, run complete handshakes one after the other.
    let config = keys.client(None);
    std::thread::scope(|scope| {
        let shaking = scope.spawn(|| {
            for _ in 0..100 {
                assert_eq!(
                    connect(&door, &config).ask(&["PING"]),
                    Reply::status("PONG")
                );
            }
        });
        while !shaking.is_finished() {
            assert_eq!(known.ask(&["GET", "k"]), Reply::bulk("v"));
        }
    });
    for half in halves {
        ends(half);
    }
    assert_eq!(known.ask(&["GET", "k"]), Reply::bulk("v"));
    assert_eq!(door.processes("pgcache resp network").len(), 1);
}

#[test]
fn encrypted_clients_read_why_they_are_ended_while_pgcache_is_off() {
    const OFF: &str = "ERR the Redis protocol is disabled: pgcache.enabled is off";
    let (door, keys) = door(&[]);
    let mut session = door.cluster.connect("postgres");
    let mut idle = connect(&door, &keys.client(None));
    assert_eq!(idle.ask(&["PING"]), Reply::status("PONG"));
    let mut silent = door.tcp();
    let ends = |client: &mut Client| {
        assert_eq!(client.reply().map(Reply::error).as_deref(), Some(OFF));
        assert_eq!(client.reply(), None);
    };
    session.run("ALTER SYSTEM SET pgcache.enabled = off");
    session.run("SELECT pg_reload_conf()");
    ends(&mut idle);
    let mut late = connect(&door, &keys.client(None));
    assert!(late.send(&Client::request(&[b"PING"])));
    ends(&mut late);
    // A client that has sent no byte is disconnected without a message.
    assert_eq!(silent.reply(), None);
    session.run("ALTER SYSTEM RESET pgcache.enabled");
    session.run("SELECT pg_reload_conf()");
    wait_until("a client is served", || {
        door.try_tls(HOME, &keys.client(None))
            .is_ok_and(|mut client| client.ask_if_open(&["PING"]) == Some(Reply::status("PONG")))
    });
}
