//! One section to DER: the only place that knows `rustls-pemfile`.
//!
//! That crate is archived (RUSTSEC-2025-0134) and wraps the PEM reader of `rustls-pki-types`; should it go away,
//! this file is what changes. It is given one block at a time, as text written here, so that its leniency has
//! nothing to act on, and what it gives back is held against what was asked for.

use rustls::pki_types::PrivateKeyDer;
use rustls_pemfile::Item;
use zeroize::Zeroizing;

use super::scan::{Section, contains};
use super::{Block, Der, Encryption, Error, Label, Problem};

/// The block that `section` is.
pub(super) fn block(section: &Section<'_>) -> Result<Block, Error> {
    if let Some(problem) = must_not_be_skipped(section) {
        return Err(Error::at(section.line, problem));
    }
    let der = match canonical_label(section.label) {
        Some(label) => {
            check_base64(section)?;
            der(section, label)?
        }
        None => Der::Unread,
    };
    Ok(Block { label: section.label, line: section.line, der })
}

/// Labels that hold what somebody wanted read, in a form that is not read here.
fn must_not_be_skipped(section: &Section<'_>) -> Option<Problem> {
    match section.label {
        Label::EncryptedKey => Some(Problem::Encrypted(Encryption::Pkcs8)),
        Label::OpensshKey => Some(Problem::Openssh),
        Label::Pkcs7 => Some(Problem::Pkcs7),
        Label::DsaKey
        | Label::TrustedCertificate
        | Label::X509Certificate
        | Label::OtherCertificate
        | Label::OtherKey => Some(Problem::UnreadLabel(section.label)),
        label if label.is_private_key() && has_encryption_headers(section.body) => {
            Some(Problem::Encrypted(Encryption::DekInfo))
        }
        _ => None,
    }
}

/// RFC 1421 §4.6. ':' is no base64, so that no sound body has them.
fn has_encryption_headers(body: &[u8]) -> bool {
    contains(body, b"Proc-Type:") || contains(body, b"DEK-Info:")
}

/// What to call the block towards `rustls-pemfile`; nothing for a block that is not read.
fn canonical_label(label: Label) -> Option<&'static str> {
    match label {
        Label::Certificate => Some("CERTIFICATE"),
        Label::Pkcs8Key => Some("PRIVATE KEY"),
        Label::Pkcs1Key => Some("RSA PRIVATE KEY"),
        Label::Sec1Key => Some("EC PRIVATE KEY"),
        Label::Crl => Some("X509 CRL"),
        _ => None,
    }
}

/// RFC 4648 §4 with white space anywhere. Bits of the last symbol that carry nothing may be set: writers differ,
/// and no octet depends on them. Missing padding is refused: the body may have been cut.
fn check_base64(section: &Section<'_>) -> Result<(), Error> {
    let mut symbols = 0_usize;
    let mut padding = 0_usize;
    for (at, byte) in section.body.iter().enumerate() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/' if padding == 0 => {
                symbols = symbols.saturating_add(1);
            }
            b'=' => padding = padding.saturating_add(1),
            b'\t'..=b'\r' | b' ' => {}
            _ => return Err(not_base64(section, at)),
        }
    }
    if symbols == 0 {
        let problem = Problem::EmptyBlock { block: section.number, label: section.label };
        return Err(Error::at(section.line, problem));
    }
    match (symbols % 4, padding) {
        (0, 0) | (2, 2) | (3, 1) => Ok(()),
        _ => Err(not_base64(section, section.body.trim_ascii_end().len())),
    }
}

/// An error at the line of the `at`th byte of the body.
fn not_base64(section: &Section<'_>, at: usize) -> Error {
    let before = section.body.get(..at).unwrap_or(section.body);
    let lines = super::scan::Lines::new(before).count();
    let starts_line = matches!(before.last(), Some(b'\n' | b'\r'));
    let problem = Problem::Base64 { block: section.number, label: section.label };
    let line = section.line.saturating_add(lines.max(1)).saturating_add(usize::from(starts_line));
    Error::at(line, problem)
}

fn der(section: &Section<'_>, label: &str) -> Result<Der, Error> {
    let failed = || not_base64(section, 0);
    let text = normalised(section.body, label);
    // The error holds text of the file: it goes no further.
    let Ok(Some((item, rest))) = rustls_pemfile::read_one_from_slice(&text) else {
        return Err(failed());
    };
    let der = match (section.label, item) {
        (Label::Certificate, Item::X509Certificate(der)) => Der::Public(der.to_vec()),
        (Label::Crl, Item::Crl(der)) => Der::Public(der.to_vec()),
        (Label::Pkcs8Key, Item::Pkcs8Key(key)) => Der::Key(Zeroizing::new(PrivateKeyDer::from(key))),
        (Label::Pkcs1Key, Item::Pkcs1Key(key)) => Der::Key(Zeroizing::new(PrivateKeyDer::from(key))),
        (Label::Sec1Key, Item::Sec1Key(key)) => Der::Key(Zeroizing::new(PrivateKeyDer::from(key))),
        _ => return Err(failed()),
    };
    match rest.trim_ascii().is_empty() {
        true => Ok(der),
        false => Err(failed()),
    }
}

/// The block as every reader understands it. One allocation: a key leaves no copies behind.
fn normalised(body: &[u8], label: &str) -> Zeroizing<Vec<u8>> {
    let markers = "-----BEGIN -----\n\n-----END -----\n".len().saturating_add(label.len().saturating_mul(2));
    let mut text = Zeroizing::new(Vec::with_capacity(body.len().saturating_add(markers)));
    text.extend_from_slice(b"-----BEGIN ");
    text.extend_from_slice(label.as_bytes());
    text.extend_from_slice(b"-----\n");
    text.extend(body.iter().filter(|byte| !byte.is_ascii_whitespace() && **byte != 0x0b));
    text.extend_from_slice(b"\n-----END ");
    text.extend_from_slice(label.as_bytes());
    text.extend_from_slice(b"-----\n");
    text
}
