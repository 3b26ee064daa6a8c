//! The revocation lists of all CRL files, each known to be usable, and only those that are not superseded.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateRevocationListDer, Der, TrustAnchor, UnixTime};
use x509_parser::num_bigint::BigUint;
use x509_parser::prelude::FromDer;
use x509_parser::revocation_list::CertificateRevocationList;

use crate::bundle::{BundleError, Found, Warning};
use crate::paths::Role;
use crate::pem;

/// What a revocation list that is past its next update is worth.
///
/// By then the CA promised a newer one (RFC 5280 §5.1.2.5); why there is none, nobody here can know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CrlExpiry {
    /// The list stays in force and [`Warning::CrlExpired`] says so: whoever is on it is refused, and a CA that is
    /// late does not lock everybody out. What rustls does by itself.
    #[default]
    Warn,
    /// Every peer whose issuer the list covers is refused until a newer one is there. For those who would rather
    /// have an outage than miss a revocation.
    Enforce,
}

/// Which of the CRL files.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CrlFile {
    /// The only one.
    Only,
    /// One of several that came without a path, counted from 1.
    Number(usize),
    /// The one at this path.
    At(PathBuf),
}

impl CrlFile {
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::At(path) => Some(path),
            Self::Only | Self::Number(_) => None,
        }
    }
}

impl fmt::Display for CrlFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Only => Role::Crl.fmt(f),
            Self::Number(number) => write!(f, "{} {number}", Role::Crl),
            Self::At(path) => path.display().fmt(f),
        }
    }
}

/// The bytes of one CRL file.
#[derive(Clone, Copy)]
pub(crate) struct CrlInput<'a> {
    pub(crate) path: Option<&'a Path>,
    pub(crate) bytes: &'a [u8],
}

/// What the CRL files hold.
#[derive(Clone)]
pub(super) struct Lists {
    /// The newest first: rustls asks the first one that is about the issuer, and no other.
    pub(super) ders: Vec<CertificateRevocationListDer<'static>>,
    pub(super) next_update: Option<i64>,
}

impl Lists {
    pub(super) fn read(
        files: &[CrlInput<'_>],
        provider: &CryptoProvider,
        now: UnixTime,
        warnings: &mut Vec<Warning>,
    ) -> Result<Self, BundleError> {
        let mut lists = Vec::new();
        for (number, input) in (1..).zip(files) {
            let file = match (input.path, files.len()) {
                (Some(path), _) => CrlFile::At(path.to_owned()),
                (None, 1) => CrlFile::Only,
                (None, _) => CrlFile::Number(number),
            };
            read_file(&file, input.bytes, provider, warnings, &mut lists)?;
        }
        let mut lists = without_superseded(lists, warnings);
        lists.sort_by_key(|list| std::cmp::Reverse(list.this_update));
        warnings.extend(lists.iter().filter_map(|list| expired(list, now)));
        Ok(Self {
            next_update: lists.iter().map(|list| list.next_update).min(),
            ders: lists.into_iter().map(|list| list.der).collect(),
        })
    }
}

/// One list, with what is to be known of it.
struct List {
    file: CrlFile,
    position: usize,
    der: CertificateRevocationListDer<'static>,
    scope: Scope,
    this_update: i64,
    number: Option<BigUint>,
    /// In seconds since 1970.
    next_update: i64,
}

/// What a list is about: issuer, authorityKeyIdentifier, issuingDistributionPoint, as they stand in its DER.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Scope {
    issuer: Vec<u8>,
    extensions: [Option<Vec<u8>>; 2],
}

/// Every list of a CRL file: PEM, or the DER of one, as CAs publish it (RFC 5280 §4.2.1.13).
fn read_file(
    file: &CrlFile,
    bytes: &[u8],
    provider: &CryptoProvider,
    warnings: &mut Vec<Warning>,
    lists: &mut Vec<List>,
) -> Result<(), BundleError> {
    if is_revocation_list(bytes) {
        let der = CertificateRevocationListDer::from(bytes.to_vec());
        lists.push(List::new(file, 1, None, der, provider)?);
        return Ok(());
    }
    let blocks = pem::parse(bytes).map_err(|error| BundleError::CrlPem { file: file.clone(), error })?;
    let found = Found::in_blocks(&blocks);
    let mut position = 0_usize;
    for block in blocks {
        let (label, line) = (block.label(), block.line());
        match block.into_crl() {
            Some(der) => {
                position = position.saturating_add(1);
                lists.push(List::new(file, position, Some(line), der, provider)?);
            }
            None => warnings.push(Warning::SkippedInCrl { file: file.clone(), label, line }),
        }
    }
    match position {
        0 => Err(BundleError::NoCrl { file: file.clone(), found }),
        _ => Ok(()),
    }
}

fn is_revocation_list(der: &[u8]) -> bool {
    CertificateRevocationList::from_der(der).is_ok_and(|(rest, _)| rest.is_empty())
}

impl List {
    fn new(
        file: &CrlFile,
        position: usize,
        line: Option<usize>,
        der: CertificateRevocationListDer<'static>,
        provider: &CryptoProvider,
    ) -> Result<Self, BundleError> {
        let unusable = || BundleError::UnusableCrl { file: file.clone(), position, line };
        if !is_usable(&der, provider) {
            return Err(unusable());
        }
        let (_, list) = CertificateRevocationList::from_der(&der).map_err(|_| unusable())?;
        let extension = |wanted: &[u8]| {
            let extensions = list.extensions().iter();
            let mut found = extensions.filter(|extension| extension.oid.as_bytes() == wanted);
            found.next().map(|extension| extension.value.to_vec())
        };
        let scope = Scope {
            issuer: list.issuer().as_raw().to_vec(),
            extensions: [extension(AUTHORITY_KEY_IDENTIFIER), extension(ISSUING_DISTRIBUTION_POINT)],
        };
        let (this_update, number) = (list.last_update().timestamp(), list.crl_number().cloned());
        let next_update = list.next_update().ok_or_else(unusable)?.timestamp();
        drop(list);
        Ok(Self { file: file.clone(), position, der, scope, this_update, number, next_update })
    }

    fn is_newer_than(&self, other: &Self) -> bool {
        (self.this_update, &self.number) > (other.this_update, &other.number)
    }
}

/// Security: rustls can use the list. It would find out only when its verifier is built, and could not say which
/// list it was.
fn is_usable(list: &CertificateRevocationListDer<'static>, provider: &CryptoProvider) -> bool {
    // A verifier needs an anchor; this one verifies nothing.
    let anchor = TrustAnchor {
        subject: Der::from_slice(&[]),
        subject_public_key_info: Der::from_slice(&[]),
        name_constraints: None,
    };
    let roots = RootCertStore { roots: vec![anchor] };
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::new(provider.clone()))
        .with_crls([list.clone()])
        .build()
        .is_ok()
}

/// Security: of several lists about the same, the newest. rustls would take the first, and a directory in which
/// old lists pile up would hide every later revocation.
fn without_superseded(lists: Vec<List>, warnings: &mut Vec<Warning>) -> Vec<List> {
    let mut newest: HashMap<Scope, usize> = HashMap::new();
    for (at, list) in lists.iter().enumerate() {
        match newest.entry(list.scope.clone()) {
            Entry::Vacant(free) => {
                free.insert(at);
            }
            Entry::Occupied(mut taken) => {
                if lists.get(*taken.get()).is_some_and(|before| list.is_newer_than(before)) {
                    taken.insert(at);
                }
            }
        }
    }
    let mut kept = Vec::new();
    for (at, list) in lists.into_iter().enumerate() {
        match newest.get(&list.scope) == Some(&at) {
            true => kept.push(list),
            false => warnings.push(Warning::CrlSuperseded { file: list.file, position: list.position }),
        }
    }
    kept
}

/// Courtesy: a newer list is due. Whether peers are refused for it is the caller's choice, [`CrlExpiry`].
fn expired(list: &List, now: UnixTime) -> Option<Warning> {
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let (file, position, next_update) = (list.file.clone(), list.position, list.next_update);
    (next_update <= now).then_some(Warning::CrlExpired { file, position, next_update })
}

/// 2.5.29.35
const AUTHORITY_KEY_IDENTIFIER: &[u8] = &[0x55, 0x1d, 35];

/// 2.5.29.28
const ISSUING_DISTRIBUTION_POINT: &[u8] = &[0x55, 0x1d, 28];
