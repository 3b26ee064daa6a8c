//! Trust means now: what was withdrawn is withdrawn from resumed sessions too, and what stays stays.
//!
//! The clients are real ones of OpenSSL, with their sessions in files.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "test code outside of test functions"
)]

mod common;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::tls::Server;
use common::{Mount, Pair, Pki, SOON};
use rustls_reload::issue::{Ca, Issued};
use rustls_reload::{ClientAuth, Reloader};
use tempfile::TempDir;

/// A mount with a CA for clients, a server on it, and clients of two CAs.
struct Stage {
    pki: Pki,
    mount: Mount,
    reloader: Reloader,
    server: Server,
    dir: TempDir,
    one: Ca,
    other: Ca,
    pair: Pair,
}

impl Stage {
    fn new() -> Self {
        let pki = Pki::new();
        let (one, other) = (Ca::new("clients one").unwrap(), Ca::new("clients other").unwrap());
        let pair = pki.pair(1);
        let mount = Mount::new();
        mount.swap_with_ca(&pair, one.cert_pem());
        let reloader = Reloader::builder(mount.paths()).client_auth(ClientAuth::Required).start().unwrap();
        let server = Server::start(&reloader);
        Self { pki, mount, reloader, server, dir: tempfile::tempdir().unwrap(), one, other, pair }
    }

    /// Publishes and waits until it is served.
    fn swap(&self, pair: &Pair, ca: &str) {
        let next = self.reloader.store().number() + 1;
        self.mount.swap_with_ca(pair, ca);
        self.reloader.wait_for(next, SOON).expect("published");
    }

    fn client(&self, ca: &Ca, name: &str) -> Client {
        Client::new(self.dir.path(), name, &ca.client(name).issue().unwrap(), self.server.address)
    }
}

#[test]
fn clients_of_a_removed_ca_resume_nothing() {
    for version in Version::ALL {
        let stage = Stage::new();
        let (removed, stays) = (stage.client(&stage.one, "removed"), stage.client(&stage.other, "stays"));
        assert_eq!(removed.shake(version), Answer::Full, "{version:?}");
        assert_eq!(removed.resume(version), Answer::Resumed, "{version:?}: while the CA is trusted");
        assert_eq!(stays.shake(version), Answer::Refused, "{version:?}: not trusted yet");

        let both = [stage.one.cert_pem(), stage.other.cert_pem()].concat();
        stage.swap(&stage.pair, &both);
        assert_eq!(removed.resume(version), Answer::Resumed, "{version:?}: trust that grows ends nothing");
        assert_eq!(stays.shake(version), Answer::Full, "{version:?}");

        stage.swap(&stage.pair, stage.other.cert_pem());
        for _ in 0..3 {
            assert_eq!(removed.resume(version), Answer::Refused, "{version:?}: by its session");
        }
        assert_eq!(removed.shake(version), Answer::Refused, "{version:?}: afresh");
        assert!(removed.said().contains("unknown ca"), "{}", removed.said());
        assert_eq!(stays.resume(version), Answer::Full, "{version:?}: declined, not failed");
        assert_eq!(stays.resume(version), Answer::Resumed, "{version:?}: and from then on resumed");
    }
}

#[test]
fn renewal_of_the_leaf_keeps_resumption() {
    resumptions_over_renewals(40);
}

#[test]
#[ignore = "five hundred processes for each version"]
fn five_hundred_resumptions_over_renewals() {
    resumptions_over_renewals(500);
}

fn resumptions_over_renewals(count: u32) {
    for version in Version::ALL {
        let stage = Stage::new();
        let client = stage.client(&stage.one, "client");
        assert_eq!(client.shake(version), Answer::Full);
        let mut resumed = 0;
        for round in 0..count {
            if round % 10 == 0 {
                stage.swap(&stage.pki.pair(u64::from(round) + 2), stage.one.cert_pem());
            }
            // Each resumption leaves a fresh ticket in the file.
            resumed += u32::from(client.resume(version) == Answer::Resumed);
        }
        println!("{version:?}: {resumed} of {count} resumed over {} renewals", count.div_ceil(10));
        assert!(resumed * 100 >= count * 99, "{version:?}: {resumed} of {count}");
    }
}

#[test]
fn revoked_client_is_refused_resumed_or_not() {
    for version in Version::ALL {
        let stage = Stage::new();
        let crl = |serials: &[u64]| stage.one.crl(serials).issue().unwrap().pem().to_owned();
        let files = |revoked: &[u64]| {
            [
                ("tls.crt", stage.pair.chain.clone()),
                ("tls.key", stage.pair.key.clone()),
                ("ca.crt", stage.one.cert_pem().to_owned()),
                ("ca.crl", crl(revoked)),
            ]
        };
        let put = |mount: &Mount, revoked: &[u64]| {
            let files = files(revoked);
            let files: Vec<_> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
            mount.put(&files);
        };
        let mount = Mount::new();
        put(&mount, &[99]);
        let paths = mount.paths().with_crl(mount.path().join("ca.crl"));
        let reloader = Reloader::builder(paths).client_auth(ClientAuth::Required).start().unwrap();
        let server = Server::start(&reloader);
        let issue = |serial: u64| stage.one.client("client").serial(serial).issue().unwrap();
        let revoked = Client::new(stage.dir.path(), "revoked", &issue(7), server.address);
        let good = Client::new(stage.dir.path(), "good", &issue(8), server.address);
        assert_eq!((revoked.shake(version), good.shake(version)), (Answer::Full, Answer::Full));
        assert_eq!(revoked.resume(version), Answer::Resumed);
        put(&mount, &[99, 7]);
        reloader.wait_for(2, SOON).expect("published");
        assert_eq!(revoked.resume(version), Answer::Refused, "{version:?}: by its session");
        assert_eq!(revoked.shake(version), Answer::Refused, "{version:?}: afresh");
        assert!(revoked.said().contains("revoked"), "{}", revoked.said());
        assert_eq!(good.resume(version), Answer::Full, "{version:?}: declined, not failed");
    }
}

/// How OpenSSL connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Tls12Ticket,
    /// The session stays with the server, under its id.
    Tls12Stored,
    Tls13,
}

impl Version {
    const ALL: [Self; 3] = [Self::Tls12Ticket, Self::Tls12Stored, Self::Tls13];

    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Tls12Ticket => &["-tls1_2"],
            Self::Tls12Stored => &["-tls1_2", "-no_ticket"],
            Self::Tls13 => &["-tls1_3"],
        }
    }
}

/// What became of a connection: the byte that comes back is the proof that the client was let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Full,
    Resumed,
    Refused,
}

/// `openssl s_client` with a certificate and a file for its session.
struct Client {
    base: PathBuf,
    address: SocketAddr,
}

impl Client {
    fn new(dir: &Path, name: &str, issued: &Issued, address: SocketAddr) -> Self {
        let base = dir.join(name);
        fs::write(base.with_extension("crt"), issued.chain_pem()).unwrap();
        fs::write(base.with_extension("key"), issued.key_pem().as_bytes()).unwrap();
        Self { base, address }
    }

    fn shake(&self, version: Version) -> Answer {
        self.run(version, &[])
    }

    fn resume(&self, version: Version) -> Answer {
        let session = self.file("session");
        self.run(version, &["-sess_in", &session])
    }

    /// What it printed last.
    fn said(&self) -> String {
        String::from_utf8_lossy(&read(&self.base.with_extension("said"))).into_owned()
    }

    fn run(&self, version: Version, more: &[&str]) -> Answer {
        let mut child = Command::new("openssl")
            .args(["s_client", "-connect", &self.address.to_string(), "-cert", &self.file("crt")])
            .args(["-key", &self.file("key"), "-sess_out", &self.file("session"), "-servername", "localhost"])
            .args(version.arguments())
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(self.base.with_extension("said")).unwrap())
            .spawn()
            .expect("openssl is there");
        // The echo comes after the tickets.
        child.stdin.as_mut().unwrap().write_all(b"#").ok();
        let mut said = Vec::new();
        let mut out = child.stdout.take().unwrap();
        let mut chunk = [0; 4096];
        while !said.ends_with(b"#") {
            match out.read(&mut chunk) {
                Ok(count @ 1..) => said.extend_from_slice(&chunk[..count]),
                _ => break,
            }
        }
        drop(child.stdin.take());
        out.read_to_end(&mut said).unwrap();
        child.wait().unwrap();
        let text = String::from_utf8_lossy(&said);
        match () {
            () if !text.contains('#') || !text.contains("Cipher is") => Answer::Refused,
            () if text.contains("\nReused, ") => Answer::Resumed,
            () => Answer::Full,
        }
    }

    fn file(&self, extension: &str) -> String {
        self.base.with_extension(extension).to_str().unwrap().to_owned()
    }
}

fn read(path: &Path) -> Vec<u8> {
    let mut text = Vec::new();
    fs::File::open(path).unwrap().read_to_end(&mut text).unwrap();
    text
}
