//! The search for key material in whatever can be printed.
#![allow(dead_code, clippy::indexing_slicing, reason = "test code; each file uses its own part")]

use std::collections::HashSet;

use rustls_reload::pem;

/// What must not be seen of some files, in any of the forms in which bytes get printed.
#[derive(Default)]
pub(crate) struct Secrets {
    base64: HashSet<Vec<u8>>,
    hex: HashSet<Vec<u8>>,
    decimal: HashSet<String>,
}

impl Secrets {
    pub(crate) fn of(text: &[u8]) -> Self {
        let mut secrets = Self::default();
        secrets.add(text);
        secrets
    }

    /// One more file.
    pub(crate) fn add(&mut self, text: &[u8]) {
        let dense: Vec<u8> = text.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
        let base64 = dense.windows(16).filter(|run| run.iter().all(is_base64));
        self.base64.extend(base64.map(<[u8]>::to_vec));
        self.decimal.extend(decimal_runs(text));
        match pem::parse(text) {
            Ok(blocks) => {
                for key in blocks.iter().filter_map(pem::Block::private_key) {
                    self.hex.extend(hex_runs(key.secret_der()));
                    self.decimal.extend(decimal_runs(key.secret_der()));
                }
            }
            Err(_) => self.hex.extend(hex_runs(text)),
        }
    }

    /// What a certificate says as well may be seen: a private key is written with its public key.
    pub(crate) fn forget(&mut self, certificate: &[u8]) {
        for run in hex_runs(certificate) {
            self.hex.remove(&run);
        }
        for run in decimal_runs(certificate) {
            self.decimal.remove(&run);
        }
    }

    /// Panics with what stands around, if anything is seen in `output`.
    pub(crate) fn check(&self, what: &str, output: &str) {
        let lower = output.to_ascii_lowercase();
        let base64 = output.as_bytes().windows(16).position(|run| self.base64.contains(run));
        let hex = lower.as_bytes().windows(16).position(|run| self.hex.contains(run));
        for (at, form) in [(base64, "base64"), (hex, "hexadecimal")] {
            let around = at.map(|at| {
                &output.as_bytes()[at.saturating_sub(200)..output.len().min(at.saturating_add(200))]
            });
            let around = around.map(String::from_utf8_lossy);
            assert!(around.is_none(), "{what}: quoted in {form}: {}", around.unwrap_or_default());
        }
        let parts: Vec<&str> = output.split([',', '[', ']', ' ']).filter(|part| !part.is_empty()).collect();
        let numbers = |run: &[&str]| run.iter().all(|part| part.parse::<u8>().is_ok());
        let decimal = parts.windows(4).position(|run| numbers(run) && self.decimal.contains(&run.join(", ")));
        let around = decimal.map(|at| parts[at.saturating_sub(20)..parts.len().min(at + 20)].join(" "));
        assert!(around.is_none(), "{what}: quoted in decimal: {}", around.unwrap_or_default());
    }
}

fn hex_runs(bytes: &[u8]) -> Vec<Vec<u8>> {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    hex.as_bytes().windows(16).map(<[u8]>::to_vec).collect()
}

fn decimal_runs(bytes: &[u8]) -> impl Iterator<Item = String> {
    bytes.windows(4).map(|run| format!("{}, {}, {}, {}", run[0], run[1], run[2], run[3]))
}

fn is_base64(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/=".contains(byte)
}
