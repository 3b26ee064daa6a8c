//! What can be wrong with a PEM text, as facts that are safe to log.

use std::fmt;

use super::Label;

/// Why a text was refused as PEM.
///
/// Holds line and block numbers and known labels, never a piece of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub(super) problem: Problem,
    pub(super) line: Option<usize>,
}

impl Error {
    /// What is wrong.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// The line it was found at, counted from 1, if it concerns one.
    pub fn line(&self) -> Option<usize> {
        self.line
    }

    pub(super) fn at(line: usize, problem: Problem) -> Self {
        Self { problem, line: Some(line) }
    }

    pub(super) fn whole(problem: Problem) -> Self {
        Self { problem, line: None }
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        self.problem.fmt(f)
    }
}

/// What is wrong with a PEM text.
///
/// Blocks are counted from 1, lines too.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// Nothing but white space.
    #[error("the file is empty")]
    Empty,
    /// Nothing but NUL bytes: what some file systems leave after a power cut.
    #[error(
        "no PEM block: the file is nothing but NUL bytes, probably the trace of a power cut: write it again"
    )]
    OnlyNul,
    /// A NUL byte among text.
    #[error("NUL byte: the file is damaged: write it again")]
    Nul,
    /// Text without any marker.
    #[error("no PEM block: not one line starts with -----BEGIN")]
    NoBlock,
    /// An HTML page.
    #[error("no PEM block: the file is an HTML page: was a web server's error page saved?")]
    Html,
    /// Base64 applied once more, as in the `data` of a Kubernetes Secret.
    #[error("no PEM block: the file looks like base64 of a PEM file: decode it once (base64 -d)")]
    Base64OfPem,
    /// UTF-16, as some Windows tools write.
    #[error("UTF-16 text: convert it to ASCII (iconv -f UTF-16 -t UTF-8)")]
    Utf16,
    /// DER.
    #[error("DER, not PEM: {0}")]
    Der(DerContent),
    /// A byte-order mark in front of a marker that is not the first thing in the text.
    #[error("a byte-order mark stands before the {0} marker: remove the three bytes EF BB BF")]
    ByteOrderMark(Marker),
    /// Something precedes a marker on its line.
    #[error("the {0} marker is not at the start of its line: remove what stands before it")]
    NotAtLineStart(Marker),
    /// The end of one block and the start of the next share a line.
    #[error("END and BEGIN on one line: a file without a final newline was joined with another")]
    Glued,
    /// Line breaks became blanks, or nothing.
    #[error("line breaks are missing: BEGIN, the body and END share one line")]
    LineBreaksMissing,
    /// Line breaks became the two characters `\` and `n`.
    #[error(r"line breaks are written as \n, two characters: turn them into real ones (printf %b)")]
    LineBreaksEscaped,
    /// Text follows a marker on its line.
    #[error("text after the {0} marker: a line break is missing")]
    TextAfterMarker(Marker),
    /// Something that was meant as a marker.
    #[error("malformed {0} marker: expected five hyphens, {0}, a label and five hyphens")]
    MalformedMarker(Marker),
    /// A long line of base64 outside any block.
    #[error("base64 outside any block: its BEGIN line is missing or damaged")]
    StrayBase64,
    /// The last line is a part of a BEGIN marker.
    #[error("the last line is part of a BEGIN marker: the file is cut off or still being written")]
    MarkerCut,
    /// A BEGIN before the END of the block before.
    #[error("BEGIN inside block {block}, which starts at line {begun}: that block is cut off")]
    BeginInside {
        /// The number of the block that has no END.
        block: usize,
        /// The line of its BEGIN.
        begun: usize,
    },
    /// An END that no BEGIN precedes.
    #[error("END without BEGIN: the start of the block is missing")]
    EndWithoutBegin,
    /// The text ends inside a block.
    #[error("block {block} ({label}) has no END line: the file is cut off or still being written")]
    EndMissing {
        /// The number of the block.
        block: usize,
        /// Its label.
        label: Label,
    },
    /// BEGIN and END name different things.
    #[error("block {block} begins as {begin} but ends as {end}")]
    LabelsDiffer {
        /// The number of the block.
        block: usize,
        /// The label of its BEGIN.
        begin: Label,
        /// The label of its END.
        end: Label,
    },
    /// A body that is not base64 (RFC 4648 §4), or lacks its padding.
    #[error("block {block} ({label}) is not valid base64")]
    Base64 {
        /// The number of the block.
        block: usize,
        /// Its label.
        label: Label,
    },
    /// BEGIN and END with nothing between.
    #[error("block {block} ({label}) is empty")]
    EmptyBlock {
        /// The number of the block.
        block: usize,
        /// Its label.
        label: Label,
    },
    /// A private key behind a passphrase.
    #[error("the private key is encrypted ({0}): decrypt it first (openssl pkey -in OLD -out NEW)")]
    Encrypted(Encryption),
    /// `OPENSSH PRIVATE KEY`.
    #[error(
        "OPENSSH PRIVATE KEY, expected a PKCS#8, PKCS#1 or SEC1 private key: \
         convert it (ssh-keygen -p -m PKCS8 -f FILE)"
    )]
    Openssh,
    /// PKCS#7 or CMS.
    #[error("PKCS7, expected CERTIFICATE: unpack it (openssl pkcs7 -print_certs -in OLD -out NEW)")]
    Pkcs7,
    /// A label that is not read and must not be skipped.
    #[error("{0} is not read here: {advice}", advice = unread_advice(*.0))]
    UnreadLabel(Label),
}

/// One of the two markers of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Marker {
    /// `-----BEGIN LABEL-----`.
    Begin,
    /// `-----END LABEL-----`.
    End,
}

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Begin => "BEGIN",
            Self::End => "END",
        })
    }
}

/// How a private key is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Encryption {
    /// `ENCRYPTED PRIVATE KEY` (PKCS#8, RFC 5958 §3).
    Pkcs8,
    /// `Proc-Type` and `DEK-Info` headers (RFC 1421 §4.6).
    DekInfo,
}

impl fmt::Display for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pkcs8 => "PKCS#8",
            Self::DekInfo => "DEK-Info",
        })
    }
}

/// What a DER file seems to hold, as far as its first elements tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DerContent {
    /// A certificate, or another signed object of that shape (a CRL, a request).
    Certificate,
    /// A private key.
    PrivateKey,
    /// PKCS#12 (`.p12`, `.pfx`).
    Pkcs12,
    /// PKCS#7 (`.p7b`).
    Pkcs7,
    /// None of these.
    Unknown,
}

impl fmt::Display for DerContent {
    /// The command that makes PEM of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Certificate => "convert the certificate (openssl x509 -inform DER -in OLD -out NEW)",
            Self::PrivateKey => "convert the private key (openssl pkey -inform DER -in OLD -out NEW)",
            Self::Pkcs12 => "unpack the PKCS#12 file (openssl pkcs12 -nodes -in OLD -out NEW)",
            Self::Pkcs7 => "unpack the PKCS#7 file (openssl pkcs7 -inform DER -print_certs -in OLD -out NEW)",
            Self::Unknown => "convert it to PEM",
        })
    }
}

fn unread_advice(label: Label) -> &'static str {
    match label {
        Label::TrustedCertificate => {
            "it carries OpenSSL's own trust settings: convert it (openssl x509 -in OLD -out NEW)"
        }
        Label::X509Certificate => {
            "it is an old name of CERTIFICATE: convert it (openssl x509 -in OLD -out NEW)"
        }
        Label::DsaKey => "TLS 1.3 has no DSA, and no provider of rustls either",
        Label::OtherKey => "expected PRIVATE KEY, RSA PRIVATE KEY or EC PRIVATE KEY",
        _ => "expected CERTIFICATE",
    }
}

impl Problem {
    /// A short, stable name of the kind of problem, for a metric's label.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Empty | Self::OnlyNul => "pem_empty",
            Self::NoBlock | Self::Html | Self::Base64OfPem | Self::Utf16 | Self::Der(_) => "pem_not_pem",
            Self::BeginInside { .. } | Self::EndWithoutBegin | Self::EndMissing { .. } | Self::Nul => {
                "pem_torn"
            }
            Self::Encrypted(_) => "pem_encrypted_key",
            Self::Openssh | Self::Pkcs7 | Self::UnreadLabel(_) => "pem_unread_label",
            _ => "pem_damaged",
        }
    }
}
