//! Creates keys, certificates and revocation lists with the program `openssl`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::cluster::Cluster;
use crate::stage::{Stage, succeed};

/// The configuration for `openssl`: the certificate authority, the certificates that it signs, and the path of its
/// revocation list.
const CONFIGURATION: &str = "
[req]
distinguished_name = name
x509_extensions = authority
prompt = no
[name]
CN = nobody
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[leaf]
basicConstraints = critical, CA:FALSE
subjectAltName = DNS:localhost, IP:127.0.0.1
[ca]
default_ca = own
[own]
database = index.txt
default_md = sha256
default_crl_days = 30
crlnumber = number.txt
crl_extensions = list
[list]
authorityKeyIdentifier = keyid
";

/// A folder of keys in the folder of a server.
pub struct Keys {
    pub folder: PathBuf,
    stage: &'static Stage,
}

impl Keys {
    /// Creates a folder with an authority `ca`, and a certificate `server` signed by it.
    pub fn beside(cluster: &Cluster) -> Keys {
        let keys = Keys {
            folder: cluster.folder.join("keys"),
            stage: Stage::current(),
        };
        std::fs::create_dir(&keys.folder).expect("the folder is ours");
        keys.write("configuration", CONFIGURATION);
        keys.write("index.txt", "");
        keys.write("number.txt", "01\n");
        keys.stage.give(&keys.folder);
        keys.authority("ca");
        keys.make("server", "/CN=server", "ca");
        keys
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("the folder is ours");
        self.stage.give(&self.path(name));
    }

    /// Returns the server settings that name the files of the folder.
    pub fn settings(&self) -> [String; 3] {
        let named =
            |setting: &str, name: &str| format!("{setting} = '{}'", self.path(name).display());
        [
            named("ssl_cert_file", "server.crt"),
            named("ssl_key_file", "server.key"),
            named("ssl_ca_file", "ca.crt"),
        ]
    }

    fn openssl(&self, arguments: &[&str]) {
        succeed(
            Command::new("openssl")
                .current_dir(&self.folder)
                .args(arguments),
        );
    }

    fn give(&self, names: &[String]) {
        for name in names {
            self.stage.give(&self.path(name));
        }
    }

    pub fn authority(&self, name: &str) {
        let (key, certificate) = (format!("{name}.key"), format!("{name}.crt"));
        let subject = format!("/CN={name}");
        self.openssl(&[
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-config",
            "configuration",
            "-keyout",
            &key,
            "-out",
            &certificate,
            "-subj",
            &subject,
            "-days",
            "3650",
        ]);
        self.give(&[key, certificate]);
    }

    /// Creates NAME.key and NAME.crt with this subject, signed by this authority.
    pub fn make(&self, name: &str, subject: &str, authority: &str) {
        let [key, request, certificate] =
            ["key", "csr", "crt"].map(|kind| format!("{name}.{kind}"));
        self.openssl(&[
            "req",
            "-new",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-config",
            "configuration",
            "-utf8",
            "-multivalue-rdn",
            "-keyout",
            &key,
            "-out",
            &request,
            "-subj",
            subject,
        ]);
        let [by, by_key] = ["crt", "key"].map(|kind| format!("{authority}.{kind}"));
        self.openssl(&[
            "x509",
            "-req",
            "-in",
            &request,
            "-CA",
            &by,
            "-CAkey",
            &by_key,
            "-days",
            "3650",
            "-extfile",
            "configuration",
            "-extensions",
            "leaf",
            "-out",
            &certificate,
        ]);
        self.give(&[key, certificate]);
    }

    /// Creates a copy of the key with a passphrase.
    pub fn lock(&self, name: &str, locked: &str) {
        let (from, to) = (format!("{name}.key"), format!("{locked}.key"));
        self.openssl(&[
            "ec",
            "-in",
            &from,
            "-aes128",
            "-passout",
            "pass:word",
            "-out",
            &to,
        ]);
        self.give(&[to]);
    }

    /// Writes the revocation list `ca.crl` with these certificates.
    pub fn revoke(&self, names: &[&str]) {
        let by = [
            "ca",
            "-config",
            "configuration",
            "-cert",
            "ca.crt",
            "-keyfile",
            "ca.key",
        ];
        for name in names {
            let certificate = format!("{name}.crt");
            self.openssl(&[by.as_slice(), &["-revoke", &certificate]].concat());
        }
        self.openssl(&[by.as_slice(), &["-gencrl", "-out", "ca.crl"]].concat());
        self.give(&["ca.crl".to_owned()]);
    }

    /// Returns a client's configuration that trusts `ca`, and presents this certificate.
    pub fn client(&self, certificate: Option<&str>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        for root in certificates(&self.path("ca.crt")) {
            roots.add(root).expect("it is an authority");
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("there are versions")
            .with_root_certificates(roots);
        Arc::new(match certificate {
            None => config.with_no_client_auth(),
            Some(name) => {
                let key = PrivateKeyDer::from_pem_file(self.path(&format!("{name}.key")));
                let chain = certificates(&self.path(&format!("{name}.crt")));
                config
                    .with_client_auth_cert(chain, key.expect("it has a key"))
                    .expect("they belong together")
            }
        })
    }
}

fn certificates(path: &Path) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_file_iter(path)
        .expect("the file is there")
        .map(|certificate| certificate.expect("it is whole"))
        .collect()
}
