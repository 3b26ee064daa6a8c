//! One input as the files of one generation, and the time.

use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::UnixTime;
use rustls_reload::Material;

/// 8 bytes of time, then certificate, key, CA, CRL, OCSP response and more CRLs, as many as there are.
pub struct Files<'a> {
    pub now: UnixTime,
    parts: Vec<&'a [u8]>,
}

impl<'a> Files<'a> {
    pub fn split(input: &'a [u8]) -> Option<Self> {
        let (now, mut rest) = input.split_first_chunk()?;
        let mut parts = Vec::new();
        while let Some(at) = rest.windows(SEPARATOR.len()).position(|window| window == SEPARATOR) {
            parts.push(&rest[..at]);
            rest = &rest[at + SEPARATOR.len()..];
        }
        parts.push(rest);
        Some(Self { now: unix_time(*now), parts })
    }

    /// The file with the key.
    pub fn key(&self) -> &'a [u8] {
        self.parts.get(1).unwrap_or(&self.parts[0])
    }

    pub fn material(&self) -> Material<'a> {
        let mut material = match self.parts[..] {
            [combined] => Material::combined(combined),
            _ => Material::new(self.parts[0], self.key()),
        };
        if let Some(ca) = self.parts.get(2) {
            material = material.with_ca(ca);
        }
        let crls = self.parts.get(3).into_iter().chain(self.parts.iter().skip(5));
        for (crl, path) in crls.zip(["r", "s", "t"]) {
            material = material.with_crl_at(Path::new(path), crl);
        }
        if let Some(ocsp) = self.parts.get(4) {
            material = material.with_ocsp(ocsp);
        }
        material
    }
}

/// Little endian, in seconds.
pub fn unix_time(bytes: [u8; 8]) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(u64::from_le_bytes(bytes)))
}

pub static PROVIDER: LazyLock<CryptoProvider> = LazyLock::new(rustls::crypto::ring::default_provider);

const SEPARATOR: &[u8] = b"\n%%\n";
