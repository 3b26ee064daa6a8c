//! PEM text to labelled DER blocks: every block of the text, or an error that says which line and why.
//!
//! The usual readers find what they can and say nothing of the rest: a marker that is indented, glued to the
//! one before it or preceded by a byte-order mark makes its block vanish, and a cut block is joined with the
//! next. [`parse`] accounts for every BEGIN and END it sees instead. It is lenient where writers are sloppy in
//! harmless ways (byte-order mark at the start, CRLF or CR, text between blocks, indented bodies, any line
//! length, no final newline) and strict where something could be lost.
//!
//! No error and no [`Debug`](fmt::Debug) output contains anything of the text but line numbers and labels that
//! are known: the text may be a private key. The time needed is linear in the size of the text. Nothing here
//! looks into the DER; what the blocks mean is decided by [`Bundle`](crate::Bundle).
//!
//! What cannot be noticed at this layer: text that ends exactly behind an END line is complete in itself, even
//! if more blocks were to follow.
//!
//! ```
//! use rustls_reload::pem;
//!
//! let text = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
//! let blocks = pem::parse(text).unwrap();
//! assert_eq!((blocks[0].label(), blocks[0].line()), (pem::Label::Certificate, 1));
//!
//! let torn = pem::parse(&text[..40]).unwrap_err();
//! assert_eq!(torn.to_string(), "line 1: block 1 (CERTIFICATE) has no END line: the file is cut off or still being written");
//! ```

mod decode;
mod diagnose;
mod error;
mod label;
mod marker;
mod scan;

use std::fmt;

use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use zeroize::Zeroizing;

pub use error::{DerContent, Encryption, Error, Marker, Problem};
pub use label::Label;

/// Every block of `text`, in order; at least one.
///
/// Labels that are of no interest here (`EC PARAMETERS`, for example) are returned as blocks without DER. The
/// size of `text` is the caller's to limit.
///
/// # Errors
///
/// [`Problem`] lists them. A label that is not read but contains `CERTIFICATE` or `PRIVATE KEY` is an error too:
/// to skip it would lose what was meant.
pub fn parse(text: &[u8]) -> Result<Vec<Block>, Error> {
    diagnose::binary(text)?;
    let sections = scan::sections(text)?;
    if sections.is_empty() {
        return Err(diagnose::nothing(text));
    }
    sections.iter().map(decode::block).collect()
}

/// One block of a PEM text.
///
/// The DER of a private key is overwritten when the block is dropped.
pub struct Block {
    label: Label,
    line: usize,
    der: Der,
}

impl Block {
    /// What the BEGIN line calls the block.
    pub fn label(&self) -> Label {
        self.label
    }

    /// The line of its BEGIN marker, counted from 1.
    pub fn line(&self) -> usize {
        self.line
    }

    /// The decoded body; empty for a label that is not read. It can be a private key.
    pub fn der(&self) -> &[u8] {
        match &self.der {
            Der::Public(der) => der,
            Der::Key(key) => key.secret_der(),
            Der::Unread => &[],
        }
    }

    /// The private key, if the block is one.
    pub fn private_key(&self) -> Option<&PrivateKeyDer<'static>> {
        match &self.der {
            Der::Key(key) => Some(key),
            Der::Public(_) | Der::Unread => None,
        }
    }

    /// The certificate, if the block is called one. The DER is not looked at.
    pub fn into_certificate(self) -> Option<CertificateDer<'static>> {
        match (self.label, self.der) {
            (Label::Certificate, Der::Public(der)) => Some(der.into()),
            _ => None,
        }
    }

    /// The revocation list, if the block is called one. The DER is not looked at.
    pub fn into_crl(self) -> Option<CertificateRevocationListDer<'static>> {
        match (self.label, self.der) {
            (Label::Crl, Der::Public(der)) => Some(der.into()),
            _ => None,
        }
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block").field("label", &self.label).field("line", &self.line).finish_non_exhaustive()
    }
}

enum Der {
    Public(Vec<u8>),
    Key(Zeroizing<PrivateKeyDer<'static>>),
    /// The label is known not to matter, or unknown.
    Unread,
}

#[cfg(test)]
mod tests;
