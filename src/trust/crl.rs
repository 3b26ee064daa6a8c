//! The revocation lists of a CRL file, each known to be usable.

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateRevocationListDer, Der, TrustAnchor};
use x509_parser::prelude::FromDer;
use x509_parser::revocation_list::CertificateRevocationList;

use super::blocks;
use crate::bundle::{BundleError, Found, Warning};
use crate::paths::Role;

/// Every list of a CRL file: PEM, or the DER of one, as CAs publish it (RFC 5280 §4.2.1.13).
pub(super) fn read(
    file: &[u8],
    provider: &CryptoProvider,
    warnings: &mut Vec<Warning>,
) -> Result<Vec<CertificateRevocationListDer<'static>>, BundleError> {
    let der = CertificateRevocationListDer::from(file);
    if is_revocation_list(&der) {
        let list = CertificateRevocationListDer::from(file.to_vec());
        check_use(1, None, &list, provider)?;
        return Ok(vec![list]);
    }
    let blocks = blocks(Role::Crl, file)?;
    let found = Found::in_blocks(&blocks);
    let mut lists = Vec::new();
    for block in blocks {
        let (label, line) = (block.label(), block.line());
        match block.into_crl() {
            Some(list) => {
                let position = lists.len().saturating_add(1);
                check_use(position, Some(line), &list, provider)?;
                lists.push(list);
            }
            None => warnings.push(Warning::SkippedBlock { role: Role::Crl, label, line }),
        }
    }
    match lists.is_empty() {
        true => Err(BundleError::NoCrl { found }),
        false => Ok(lists),
    }
}

fn is_revocation_list(der: &CertificateRevocationListDer<'_>) -> bool {
    CertificateRevocationList::from_der(der).is_ok_and(|(rest, _)| rest.is_empty())
}

/// Security: rustls can use the list. It would find out only when its verifier is built, and could not say which
/// list it was.
fn check_use(
    position: usize,
    line: Option<usize>,
    list: &CertificateRevocationListDer<'static>,
    provider: &CryptoProvider,
) -> Result<(), BundleError> {
    let unusable = BundleError::UnusableCrl { position, line };
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
        .map(drop)
        .map_err(|_| unusable)
}
