//! Tests that the library's declarations of the structures in libpq/hba.h match the headers of this Postgres. pgrx has
//! no bindings for them, so src/pg/version/hba_layout.rs describes them; this test compiles that file, too.

use std::mem::{offset_of, size_of};

use pgcache_tests::ask::Ask;
use pgcache_tests::cluster::Cluster;
use pgcache_tests::stage::Stage;

#[path = "../../src/pg/version/hba_layout.rs"]
#[allow(
    dead_code,
    reason = "the library uses declarations that this test does not"
)]
mod layout;

use layout::*;

macro_rules! fields {
    ($name:literal, $structure:ident: $($field:ident)*) => {
        [$((format!(concat!($name, ".", stringify!($field))), offset_of!($structure, $field))),*]
    };
}

fn described(major: u32) -> Vec<(String, usize)> {
    let mut all = vec![("sockaddr_storage".to_owned(), size_of::<Address>())];
    all.push((
        "struct sockaddr_storage.ss_family".to_owned(),
        offset_of!(Address, family),
    ));
    match major {
        15 => {
            all.extend(fields!("AuthToken", AuthToken15: string quoted));
            all.extend(fields!("TokenizedAuthLine", TokenizedAuthLine15: line_num err_msg));
        }
        _ => {
            all.extend(fields!("AuthToken", AuthToken16: string quoted regex));
            all.extend(
                fields!("TokenizedAuthLine", TokenizedAuthLine16: file_name line_num err_msg),
            );
        }
    }
    let line = match major {
        15 => 0,
        _ => offset_of!(HbaLine16, line),
    };
    let fields = fields!("HbaLine", HbaLine15: linenumber conntype databases roles addr mask ip_cmp_method
        hostname auth_method usermap clientcert clientcertname);
    all.extend(fields.map(|(name, place)| (name, line + place)));
    match major {
        15 => all.extend(fields!("IdentLine", IdentLine15: usermap ident_user pg_role re)),
        _ => all.extend(fields!("IdentLine", IdentLine16: usermap system_user pg_user)),
    }
    let peer = match major {
        15..=18 => method::PEER,
        _ => method::PEER19,
    };
    let numbers = [
        ("ctLocal", connections::LOCAL),
        ("ctHost", connections::HOST),
        ("ctHostSSL", connections::HOST_SSL),
        ("ctHostNoSSL", connections::HOST_NO_SSL),
        ("ctHostGSS", connections::HOST_GSS),
        ("ctHostNoGSS", connections::HOST_NO_GSS),
        ("ipCmpMask", comparison::MASK),
        ("ipCmpSameHost", comparison::SAME_HOST),
        ("ipCmpSameNet", comparison::SAME_NET),
        ("ipCmpAll", comparison::ALL),
        ("uaReject", method::REJECT),
        ("uaTrust", method::TRUST),
        ("uaPassword", method::PASSWORD),
        ("uaMD5", method::MD5),
        ("uaSCRAM", method::SCRAM),
        ("uaPeer", peer),
        ("uaCert", method::CERT),
        ("clientCertOff", client_cert::OFF),
        ("clientCertCA", client_cert::CA),
        ("clientCertFull", client_cert::FULL),
        ("clientCertCN", client_cert_name::CN),
        ("clientCertDN", client_cert_name::DN),
    ];
    all.extend(numbers.map(|(name, number)| (name.to_owned(), number as usize)));
    all.push(("regex_t fits".to_owned(), 1));
    all.push(("regmatch_t".to_owned(), 16));
    all
}

#[test]
fn structures_of_hba_are_as_the_headers_say() {
    let mut session = Cluster::shared().connect("postgres");
    session.run(
        "CREATE FUNCTION hba_layout() RETURNS text LANGUAGE c AS 'pgcache_layout', 'hba_layout'",
    );
    let real: String = session.text("SELECT hba_layout()");
    let described = described(Stage::current().major());
    let described = described
        .iter()
        .map(|(name, place)| format!("{name} {place}\n"));
    assert_eq!(described.collect::<String>(), real);
}
