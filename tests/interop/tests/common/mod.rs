//! What the tests share: certificates made in code, a Secret mount that rotates, clients that verify.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "test code; each file uses its own part"
)]

pub(crate) mod process;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use rustls_reload::issue::{Ca, Issued};
use rustls_reload::publish::{PublishError, SecretDir};
use rustls_reload::{Paths, Reloader};
use tempfile::TempDir;

/// Longer than anything that is expected to happen takes, shorter than a resync.
pub(crate) const SOON: Duration = Duration::from_secs(5);

/// A CA and what it issues. The serial number tells generations apart.
pub(crate) struct Pki {
    pub(crate) root: Ca,
    issuing: Ca,
}

impl Pki {
    pub(crate) fn new() -> Self {
        let root = Ca::new("interop root").unwrap();
        let issuing = root.intermediate("interop issuing CA").build().unwrap();
        Self { root, issuing }
    }

    pub(crate) fn server(&self, serial: u64) -> Pair {
        Pair::new(serial, self.issuing.server(&["localhost", "127.0.0.1"]).serial(serial).issue().unwrap())
    }

    pub(crate) fn client(&self, serial: u64) -> Pair {
        Pair::new(serial, self.issuing.client("gateway").serial(serial).issue().unwrap())
    }
}

/// Chain and key as they stand in files.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) serial: u64,
    pub(crate) leaf: CertificateDer<'static>,
    pub(crate) chain: String,
    pub(crate) key: String,
}

impl Pair {
    fn new(serial: u64, issued: Issued) -> Self {
        let (leaf, chain) = (issued.leaf_der().clone(), issued.chain_pem());
        Self { serial, leaf, chain, key: issued.key_pem().to_string() }
    }
}

/// A Kubernetes Secret mount.
pub(crate) struct Mount {
    dir: TempDir,
    secret: SecretDir,
}

impl Mount {
    pub(crate) fn with(pair: &Pair) -> Self {
        let mount = Self::new();
        mount.swap(pair);
        mount
    }

    pub(crate) fn with_ca(pair: &Pair, ca: &str) -> Self {
        let mount = Self::new();
        mount.swap_with_ca(pair, ca);
        mount
    }

    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let secret = SecretDir::open(dir.path().join("tls")).unwrap();
        Self { dir, secret }
    }

    pub(crate) fn swap(&self, pair: &Pair) {
        self.put(&[("tls.crt", &pair.chain), ("tls.key", &pair.key)]);
    }

    pub(crate) fn swap_with_ca(&self, pair: &Pair, ca: &str) {
        self.put(&[("tls.crt", &pair.chain), ("tls.key", &pair.key), ("ca.crt", ca)]);
    }

    fn put(&self, files: &[(&str, &str)]) {
        let files: Vec<_> = files.iter().map(|(name, text)| (*name, text.as_bytes())).collect();
        let deadline = Instant::now() + SOON;
        loop {
            match self.secret.publish(&files) {
                // A process that another test starts has our descriptors, and with them the lock, until its `exec`.
                Err(PublishError::Busy { .. }) if Instant::now() < deadline => std::thread::yield_now(),
                published => {
                    assert!(published.unwrap().swapped_at().is_some(), "new content");
                    return;
                }
            }
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("tls")
    }

    pub(crate) fn paths(&self) -> Paths {
        Paths::secret(self.path())
    }

    /// A file beside the mount, for tools.
    pub(crate) fn beside(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

/// Waits until `condition` holds, for at most `limit`.
pub(crate) fn eventually(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// Waits until this pair is what new connections are given.
pub(crate) fn serves(reloader: &Reloader, pair: &Pair) {
    eventually(SOON, &format!("serial {} is served; health: {}", pair.serial, reloader.health()), || {
        reloader.current().expect("something is served").bundle().chain().first() == Some(&pair.leaf)
    });
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// A client that trusts `root` and speaks these protocols. It resumes nothing: a session that is resumed
/// would show an older certificate.
pub(crate) fn client_config(root: &CertificateDer<'static>, alpn: &[&str]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(root.clone()).unwrap();
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    config
}

pub(crate) fn localhost() -> ServerName<'static> {
    ServerName::try_from("localhost").unwrap()
}

/// A blocking TLS connection to a server on this machine, its handshake done.
pub(crate) fn connect(
    address: SocketAddr,
    config: &Arc<ClientConfig>,
) -> StreamOwned<ClientConnection, TcpStream> {
    let connection = TcpStream::connect(address).unwrap();
    connection.set_nodelay(true).unwrap();
    connection.set_read_timeout(Some(SOON)).unwrap();
    connection.set_write_timeout(Some(SOON)).unwrap();
    let tls = ClientConnection::new(Arc::clone(config), localhost()).unwrap();
    let mut stream = StreamOwned::new(tls, connection);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).expect("the handshake goes through");
    }
    stream
}

/// The certificate that the peer has shown.
pub(crate) fn leaf_of(tls: &rustls::CommonState) -> CertificateDer<'static> {
    tls.peer_certificates().and_then(<[_]>::first).expect("a certificate").clone().into_owned()
}

/// `GET /` by HTTP/1.1 on a connection of its own: the certificate that was shown, and the answer.
pub(crate) fn ask(address: SocketAddr, config: &Arc<ClientConfig>) -> (CertificateDer<'static>, String) {
    let mut stream = connect(address, config);
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer and a proper end");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    (leaf_of(&stream.conn), answer.split("\r\n\r\n").nth(1).unwrap().to_owned())
}

/// What stands after `"name":` in a flat JSON object, without quotes.
pub(crate) fn field<'a>(json: &'a str, name: &str) -> &'a str {
    let (_, rest) = json.split_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("no {name} in {json}"));
    rest.split([',', '}']).next().unwrap().trim_matches('"')
}
