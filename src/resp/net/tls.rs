//! TLS for client connections: reads the server's certificate, key, CA and revocation list, and encrypts connections.
//! `auth` checks whether a certificate admits its client.
//!
//! The files and the settings are those of Postgres. A setting that rustls does not support is refused by name and
//! never ignored, because the administrator relies on postgresql.conf. A network process reads files and settings when
//! it starts and at SIGHUP. If they are wrong at a SIGHUP, new connections use the previous files and settings.
//!
//! TLS sessions are never resumed, because the client's certificate in a resumed session was checked against older
//! files.

use std::fs;
use std::io::{self, ErrorKind, Read as _, Write};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pgrx::PgSqlErrorCode;
use rustls::crypto::ring::{self, kx_group};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, ServerConnection, SupportedProtocolVersion};
use socket2::Socket;

use crate::guc::resp::{self as settings, TlsMode};
use crate::pg::resp::process;
use crate::pg::session::failure;
use crate::resp::net::certificate::{self, Certificate};

/// The first byte of a connection that begins TLS. No request begins with it.
pub const HELLO: u8 = 0x16;
/// The maximum number of plain bytes that rustls accepts and keeps, encrypted, while the socket accepts none.
const KEPT: usize = 16 << 10;
/// The maximum number of reads of the socket in search of application data. Without this limit a client could occupy
/// the process with records that contain no data.
const READS: u32 = 16;

/// The reason, for the log, why TLS cannot be used.
struct Unusable(String);

/// The encryption of connections, as the settings define it.
pub struct Tls {
    mode: TlsMode,
    config: Option<Arc<ServerConfig>>,
}

impl Tls {
    /// Reads the files if connections may be encrypted.
    pub fn new() -> Tls {
        let mut tls = Tls {
            mode: settings::tls(),
            config: None,
        };
        tls.reload();
        tls
    }

    /// Reads the files again. If they cannot be used, keeps the previous configuration.
    pub fn reload(&mut self) {
        if self.mode == TlsMode::Off {
            return;
        }
        match read() {
            Ok(config) => self.config = Some(Arc::new(config)),
            Err(Unusable(why)) => failure::warn(
                PgSqlErrorCode::ERRCODE_CONFIG_FILE_ERROR,
                match self.config {
                    Some(_) => "the Redis protocol keeps its previous TLS settings",
                    None => "the Redis protocol cannot use TLS",
                }
                .into(),
                why,
                "Fix the problem that the detail names and reload the configuration.",
            ),
        }
    }

    /// Returns whether a network connection may begin TLS.
    pub fn is_possible(&self) -> bool {
        self.mode != TlsMode::Off
    }

    /// Returns whether a network connection must begin TLS.
    pub fn is_required(&self) -> bool {
        self.mode == TlsMode::Required
    }

    /// Begins the server's side of a TLS connection. Returns None if the files could not be read.
    pub fn begin(&self) -> Option<Encryption> {
        let mut connection = ServerConnection::new(Arc::clone(self.config.as_ref()?)).ok()?;
        connection.set_buffer_limit(Some(KEPT));
        Some(Encryption { connection })
    }
}

/// The time from which the next step of a handshake may run.
pub struct Pace(Instant);

impl Pace {
    pub fn new() -> Pace {
        Pace(Instant::now())
    }

    pub fn has_come(&self) -> bool {
        Instant::now() >= self.0
    }

    pub fn took(&mut self, time: Duration) {
        self.0 = Instant::now() + time;
    }
}

/// The encryption of one connection.
pub struct Encryption {
    connection: ServerConnection,
}

/// The progress of a handshake.
pub enum Shaken {
    Done,
    /// The next step may be possible.
    More,
    /// The handshake waits for the peer.
    Waits,
}

/// The result of reading.
pub enum Read {
    /// Application data; zero bytes mean the end of the connection.
    Bytes(usize),
    /// The record contained no application data, and more records may follow.
    Other,
    /// The socket has no bytes now.
    Nothing,
}

impl Encryption {
    /// Passes to rustls the first byte of the connection, which was already read to recognize TLS.
    pub fn greet(&mut self) -> io::Result<()> {
        self.connection.read_tls(&mut [HELLO].as_slice()).map(drop)
    }

    pub fn is_shaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Runs one step of the handshake.
    pub fn shake(&mut self, socket: &Socket) -> io::Result<Shaken> {
        let mut socket = socket;
        match self.connection.read_tls(&mut socket) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Shaken::Waits),
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(Shaken::More),
            Err(error) => return Err(error),
        }
        self.process(socket)?;
        Ok(match self.connection.is_handshaking() {
            true => Shaken::More,
            false => Shaken::Done,
        })
    }

    /// Returns the names in the client's certificate, which was verified; None if the client presented none.
    pub fn certificate(&self) -> Option<Box<Certificate>> {
        let first = self.connection.peer_certificates()?.first()?;
        Some(Box::new(certificate::names(first)))
    }

    /// Reads and decrypts bytes from the client. May return fewer bytes than `room` can hold although the socket has
    /// more.
    pub fn read(&mut self, socket: &Socket, room: &mut [u8]) -> io::Result<Read> {
        let mut from = socket;
        for _ in 0..READS {
            match self.connection.reader().read(room) {
                Ok(read) => return Ok(Read::Bytes(read)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            match self.connection.read_tls(&mut from) {
                Ok(_) => self.process(socket)?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Read::Nothing),
                Err(error) => return Err(error),
            }
        }
        Ok(Read::Other)
    }

    /// Processes records that were read, and sends rustls' answers as far as the socket accepts bytes. An answer may be
    /// an alert with the reason of a failure.
    fn process(&mut self, socket: &Socket) -> io::Result<()> {
        let processed = self.connection.process_new_packets();
        let sent = self.push(socket);
        match processed {
            Ok(_) => sent.map(drop),
            Err(_) => Err(ErrorKind::InvalidData.into()),
        }
    }

    /// Takes bytes to send, and returns how many it has taken.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.connection.writer().write(bytes)
    }

    /// Sends encrypted bytes. Returns whether the socket took all of them.
    pub fn push(&mut self, socket: &Socket) -> io::Result<bool> {
        let mut to = socket;
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut to) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Returns whether encrypted bytes wait for the socket.
    pub fn has_unsent(&self) -> bool {
        self.connection.wants_write()
    }

    /// Announces the end of the connection, if the socket accepts bytes.
    pub fn end(&mut self, socket: &Socket) {
        self.connection.send_close_notify();
        // Errors are ignored, because the connection ends whether or not the peer receives the announcement.
        let _ = self.push(socket);
    }
}

/// Reads all files and settings into a configuration.
fn read() -> Result<ServerConfig, Unusable> {
    let provider = Arc::new(CryptoProvider {
        kx_groups: groups()?,
        ..ring::default_provider()
    });
    refuse_unknown()?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions()?)
        .map_err(|error| Unusable(error.to_string()))?;
    let file = |name: &str, error: &dyn std::fmt::Display| {
        Unusable(format!("The file of {name} cannot be used: {error}."))
    };
    let builder = match named("ssl_ca_file") {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for root in certificates("ssl_ca_file", &path)? {
                roots
                    .add(root)
                    .map_err(|error| file("ssl_ca_file", &error))?;
            }
            let mut verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider)
                .allow_unauthenticated();
            if let Some(path) = named("ssl_crl_file") {
                let lists = revocations(&path)?;
                verifier = verifier.with_crls(lists).enforce_revocation_expiration();
            }
            let verifier = verifier
                .build()
                .map_err(|error| file("ssl_ca_file, ssl_crl_file", &error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let path = named("ssl_cert_file").unwrap_or_default();
    let chain = certificates("ssl_cert_file", &path)?;
    let key = key(&named("ssl_key_file").unwrap_or_default())?;
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|error| file("ssl_cert_file, ssl_key_file", &error))?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.ignore_client_order = setting("ssl_prefer_server_ciphers") == "on";
    Ok(config)
}

fn setting(name: &str) -> String {
    process::setting(name).unwrap_or_default()
}

fn named(name: &str) -> Option<String> {
    Some(setting(name)).filter(|path| !path.is_empty())
}

/// Returns an error for a setting without an equivalent in rustls, unless it has its default value.
fn refuse_unknown() -> Result<(), Unusable> {
    const DEFAULTS: [(&str, &[&str]); 4] = [
        // `none` is the default of a Postgres built without OpenSSL.
        ("ssl_ciphers", &["HIGH:MEDIUM:+3DES:!aNULL", "none"]),
        ("ssl_tls13_ciphers", &[]),
        ("ssl_dh_params_file", &[]),
        ("ssl_crl_dir", &[]),
    ];
    for (name, defaults) in DEFAULTS {
        let value = setting(name);
        if !value.is_empty() && !defaults.contains(&value.as_str()) {
            return Err(Unusable(format!(
                "The parameter {name} is supported only with its default value."
            )));
        }
    }
    Ok(())
}

fn versions() -> Result<Vec<&'static SupportedProtocolVersion>, Unusable> {
    let number = |name: &str, unset: Option<u8>| {
        match setting(name).as_str() {
            "" => unset.ok_or(()),
            "TLSv1.2" => Ok(2),
            "TLSv1.3" => Ok(3),
            _ => Err(()),
        }
        .map_err(|()| Unusable(format!("The parameter {name} must be TLSv1.2 or TLSv1.3.")))
    };
    let least = number("ssl_min_protocol_version", None)?;
    let most = number("ssl_max_protocol_version", Some(3))?;
    let all = [(2, &TLS12), (3, &TLS13)];
    let chosen = all
        .into_iter()
        .filter(|(version, _)| (least..=most).contains(version));
    Ok(chosen.map(|(_, version)| version).collect())
}

/// Returns the groups for key exchange. Before version 18 Postgres' default is a single group; here this default
/// selects all supported groups.
fn groups() -> Result<Vec<&'static dyn SupportedKxGroup>, Unusable> {
    let (name, value) = match process::setting("ssl_groups") {
        Some(value) => ("ssl_groups", value),
        None => ("ssl_ecdh_curve", setting("ssl_ecdh_curve")),
    };
    if ["", "none", "prime256v1"].contains(&value.as_str()) {
        return Ok(ring::ALL_KX_GROUPS.to_vec());
    }
    let group = |word: &str| match word {
        "X25519" | "x25519" => Ok(kx_group::X25519),
        "prime256v1" | "secp256r1" | "P-256" => Ok(kx_group::SECP256R1),
        "secp384r1" | "P-384" => Ok(kx_group::SECP384R1),
        _ => Err(Unusable(format!(
            "The parameter {name} names a group that is not supported. The supported groups are X25519, prime256v1 and secp384r1."
        ))),
    };
    value.split(':').map(group).collect()
}

fn contents(name: &str, path: &str) -> Result<Vec<u8>, Unusable> {
    fs::read(path).map_err(|error| {
        Unusable(format!(
            "The file \"{path}\" of {name} cannot be read: {error}."
        ))
    })
}

fn certificates(name: &str, path: &str) -> Result<Vec<CertificateDer<'static>>, Unusable> {
    let pem = contents(name, path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let found =
        found.map_err(|_| Unusable(format!("The file \"{path}\" of {name} is damaged.")))?;
    match found.is_empty() {
        true => Err(Unusable(format!(
            "The file \"{path}\" of {name} contains no certificate."
        ))),
        false => Ok(found),
    }
}

fn revocations(path: &str) -> Result<Vec<CertificateRevocationListDer<'static>>, Unusable> {
    let pem = contents("ssl_crl_file", path)?;
    let found: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&pem).collect();
    found
        .ok()
        .filter(|found: &Vec<_>| !found.is_empty())
        .ok_or_else(|| {
            Unusable(format!(
                "The file \"{path}\" of ssl_crl_file contains no revocation list."
            ))
        })
}

/// Reads the key. Like Postgres, refuses a file that other users can access.
fn key(path: &str) -> Result<PrivateKeyDer<'static>, Unusable> {
    let about = |what: &str| Unusable(format!("The file \"{path}\" of ssl_key_file {what}."));
    let facts = fs::metadata(path).map_err(|error| about(&format!("cannot be read: {error}")))?;
    let (closed, mode) = (0o077, facts.mode());
    let is_private = match facts.uid() {
        0 if process::user() != 0 => mode & 0o027 == 0,
        owner => owner == process::user() && mode & closed == 0,
    };
    if !facts.is_file() || !is_private {
        return Err(about(
            "can be read or changed by other users; its permissions must be 0600, or 0640 if root owns it",
        ));
    }
    let pem = contents("ssl_key_file", path)?;
    // Both formats of encrypted keys contain this word in a line of plain text.
    if pem.windows(9).any(|word| word == b"ENCRYPTED") {
        return Err(about(
            "has a passphrase, and ssl_passphrase_command is not supported",
        ));
    }
    PrivateKeyDer::from_pem_slice(&pem).map_err(|_| about("contains no key"))
}
