//! What the tests share: certificates made in code, mounts written the kubelet's way, patient looking.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code; each file uses its own part"
)]

pub(crate) mod child;
pub(crate) mod log;
pub(crate) mod tls;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustls_reload::issue::{Ca, Issued, Key};
use rustls_reload::publish::{PublishError, SecretDir};
use rustls_reload::{Paths, Reloader};
use tempfile::TempDir;

/// Longer than anything that is expected to happen takes, shorter than a resync.
pub(crate) const SOON: Duration = Duration::from_secs(5);

/// A CA and what it issues. The serial number tells generations apart.
pub(crate) struct Pki {
    root: Ca,
    issuing: Ca,
}

impl Pki {
    pub(crate) fn new() -> Self {
        let root = Ca::new("test root").unwrap();
        let issuing = root.intermediate("test issuing CA").build().unwrap();
        Self { root, issuing }
    }

    pub(crate) fn pair(&self, serial: u64) -> Pair {
        self.issuing.server(&["localhost", "127.0.0.1"]).serial(serial).issue().unwrap().into()
    }

    /// A renewal that keeps the key.
    pub(crate) fn renewal(&self, serial: u64, key: &Key) -> Pair {
        self.issuing.server(&["localhost", "127.0.0.1"]).serial(serial).key(key).issue().unwrap().into()
    }

    /// Valid for so many seconds from now.
    pub(crate) fn lasting(&self, serial: u64, seconds: u64) -> Pair {
        let issued =
            self.issuing.server(&["localhost"]).serial(serial).valid_for(Duration::from_secs(seconds));
        issued.issue().unwrap().into()
    }

    /// A pair that ran out in 2001.
    pub(crate) fn expired(&self, serial: u64) -> Pair {
        let issued = self.issuing.server(&["localhost"]).serial(serial).validity(946_684_800, 978_307_200);
        issued.issue().unwrap().into()
    }

    pub(crate) fn root(&self) -> &Ca {
        &self.root
    }
}

/// Chain and key as they stand in files.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) chain: String,
    pub(crate) key: String,
}

impl From<Issued> for Pair {
    fn from(issued: Issued) -> Self {
        Self { chain: issued.chain_pem(), key: issued.key_pem().to_string() }
    }
}

/// A Kubernetes Secret mount.
pub(crate) struct Mount {
    dir: TempDir,
    secret: SecretDir,
}

impl Mount {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let secret = SecretDir::open(dir.path().join("tls")).unwrap();
        Self { dir, secret }
    }

    pub(crate) fn with(pair: &Pair) -> Self {
        let mount = Self::new();
        mount.swap(pair);
        mount
    }

    /// Swaps in a pair; the instant right after the rename.
    pub(crate) fn swap(&self, pair: &Pair) -> Instant {
        self.put(&[("tls.crt", &pair.chain), ("tls.key", &pair.key)])
    }

    pub(crate) fn swap_with_ca(&self, pair: &Pair, ca: &str) -> Instant {
        self.put(&[("tls.crt", &pair.chain), ("tls.key", &pair.key), ("ca.crt", ca)])
    }

    pub(crate) fn put(&self, files: &[(&str, &str)]) -> Instant {
        let files: Vec<_> = files.iter().map(|(name, text)| (*name, text.as_bytes())).collect();
        let deadline = Instant::now() + SOON;
        loop {
            match self.secret.publish(&files) {
                // A process that another test starts has our descriptors, and with them the lock, until its `exec`.
                Err(PublishError::Busy { .. }) if Instant::now() < deadline => std::thread::yield_now(),
                published => return published.unwrap().swapped_at().expect("new content"),
            }
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("tls")
    }

    pub(crate) fn paths(&self) -> Paths {
        Paths::secret(self.path())
    }
}

/// Two plain files in a directory of their own.
pub(crate) struct Files {
    pub(crate) dir: TempDir,
}

impl Files {
    pub(crate) fn with(pair: &Pair) -> Self {
        let files = Self { dir: tempfile::tempdir().unwrap() };
        fs::write(files.cert(), &pair.chain).unwrap();
        fs::write(files.key(), &pair.key).unwrap();
        files
    }

    pub(crate) fn cert(&self) -> PathBuf {
        self.dir.path().join("c.crt")
    }

    pub(crate) fn key(&self) -> PathBuf {
        self.dir.path().join("c.key")
    }

    pub(crate) fn paths(&self) -> Paths {
        Paths::new(self.cert(), self.key())
    }

    /// Puts both in place by rename, certificate first.
    pub(crate) fn rename_over(&self, pair: &Pair) {
        rename_over(&self.cert(), &pair.chain);
        rename_over(&self.key(), &pair.key);
    }
}

/// Writes a new file and renames it over `path`.
pub(crate) fn rename_over(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

/// The serial number of what is served.
pub(crate) fn serial(reloader: &Reloader) -> u64 {
    let generation = reloader.current().expect("something is served");
    u64::from_str_radix(generation.bundle().leaf().serial(), 16).unwrap()
}

/// Waits until `condition` holds, for at most `limit`.
pub(crate) fn eventually(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// Waits until the pair with this serial number is served.
pub(crate) fn serves(reloader: &Reloader, expected: u64) {
    eventually(SOON, &format!("serial {expected} is served; health: {}", reloader.health()), || {
        serial(reloader) == expected
    });
}

/// The crypto provider of the features that the tests are built with.
pub(crate) fn provider() -> std::sync::Arc<rustls::crypto::CryptoProvider> {
    #[cfg(feature = "ring")]
    let provider = rustls::crypto::ring::default_provider();
    #[cfg(not(feature = "ring"))]
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    std::sync::Arc::new(provider)
}

/// A clock that the test sets.
#[derive(Debug)]
pub(crate) struct Clock(std::sync::atomic::AtomicU64);

impl Clock {
    pub(crate) fn at(seconds: u64) -> std::sync::Arc<Self> {
        std::sync::Arc::new(Self(std::sync::atomic::AtomicU64::new(seconds)))
    }

    pub(crate) fn set(&self, seconds: u64) {
        self.0.store(seconds, std::sync::atomic::Ordering::SeqCst);
    }
}

impl rustls::time_provider::TimeProvider for Clock {
    fn current_time(&self) -> Option<rustls::pki_types::UnixTime> {
        Some(rustls::pki_types::UnixTime::since_unix_epoch(Duration::from_secs(
            self.0.load(std::sync::atomic::Ordering::SeqCst),
        )))
    }
}
