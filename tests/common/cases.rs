//! The files of `tests/cases` with what is said of them.
#![allow(dead_code, clippy::unwrap_used, clippy::panic, reason = "test code; each file uses its own part")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::UnixTime;
use rustls_reload::{Bundle, BundleError, Material};

/// One file, its role and what is expected.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) role: String,
    pub(crate) with: Option<String>,
    pub(crate) expected: String,
}

impl Case {
    /// The file in each of its roles, with what else is needed for a bundle.
    pub(crate) fn files(&self) -> Vec<Files> {
        let good = || Files::pair(read("pki/leaf.pem"), read("pki/leaf.key"));
        let file = || self.bytes.clone();
        let with = self.with.as_deref().map(read);
        match self.role.as_str() {
            "chain" => vec![Files::pair(file(), with.unwrap_or_else(|| read("pki/leaf.key")))],
            "chain+key" => vec![Files { key: None, ..Files::pair(file(), Vec::new()) }],
            "ca" => vec![Files { ca: Some(file()), ..good() }],
            "key" => vec![Files::pair(self.fitting_certificate(), file())],
            "any" => vec![
                Files { cert: file(), ..good() },
                Files { key: Some(file()), ..good() },
                Files { cert: file(), key: None, ..good() },
                Files { ca: Some(file()), ..good() },
                Files { crl: Some(file()), ..good() },
            ],
            other => panic!("{}: role {other}", self.name),
        }
    }

    pub(crate) fn results(&self) -> Vec<Result<Bundle, BundleError>> {
        self.files().iter().map(Files::load).collect()
    }

    fn fitting_certificate(&self) -> Vec<u8> {
        let sibling = self.name.replace(".key", ".pem");
        match self.with.as_deref() {
            Some(with) => read(with),
            None if folder().join(&sibling).exists() => read(&sibling),
            None if self.expected.contains("rsa2048") => read("pki/rsa.pem"),
            None => read("pki/leaf.pem"),
        }
    }
}

/// The files of one generation. Without a key file, the certificate file holds it.
pub(crate) struct Files {
    pub(crate) cert: Vec<u8>,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) ca: Option<Vec<u8>>,
    pub(crate) crl: Option<Vec<u8>>,
}

impl Files {
    pub(crate) fn pair(cert: Vec<u8>, key: Vec<u8>) -> Self {
        Self { cert, key: Some(key), ca: None, crl: None }
    }

    pub(crate) fn load(&self) -> Result<Bundle, BundleError> {
        let mut material = match &self.key {
            Some(key) => Material::new(&self.cert, key),
            None => Material::combined(&self.cert),
        };
        if let Some(ca) = &self.ca {
            material = material.with_ca(ca);
        }
        if let Some(crl) = &self.crl {
            material = material.with_crl(crl);
        }
        Bundle::from_pem(&material, &provider(), now())
    }
}

/// All of them, by name.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = std::fs::read_dir(folder())
        .unwrap()
        .filter_map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let name = name.strip_suffix(".expect")?.to_owned();
            let line = String::from_utf8(read(&format!("{name}.expect"))).unwrap();
            let (role, expected) = line.trim().strip_prefix("role=")?.split_once("; ")?;
            let (role, with) = match role.split_once(" with ") {
                Some((role, with)) => (role, Some(with.to_owned())),
                None => (role, None),
            };
            Some(Case {
                bytes: read(&name),
                role: role.to_owned(),
                with,
                expected: for_this_provider(expected).to_owned(),
                name,
            })
        })
        .collect();
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    cases
}

/// `ring: …; aws-lc-rs: …`
fn for_this_provider(expected: &str) -> &str {
    match expected.strip_prefix("ring: ").and_then(|expected| expected.split_once("; aws-lc-rs: ")) {
        Some((ring, _)) if cfg!(feature = "ring") => ring,
        Some((_, aws_lc_rs)) => aws_lc_rs,
        None => expected,
    }
}

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases")
}

/// A file of the folder.
#[expect(clippy::disallowed_methods, reason = "files of this repository")]
pub(crate) fn read(name: &str) -> Vec<u8> {
    std::fs::read(folder().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

pub(crate) fn provider() -> CryptoProvider {
    #[cfg(feature = "ring")]
    return rustls::crypto::ring::default_provider();
    #[cfg(not(feature = "ring"))]
    return rustls::crypto::aws_lc_rs::default_provider();
}

/// December 2027: most certificates of the cases are valid from 2026 to 2046.
pub(crate) fn now() -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(1_830_000_000))
}
