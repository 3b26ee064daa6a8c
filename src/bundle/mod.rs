//! Raw bytes of one generation to a validated [`Bundle`].
//!
//! To have a `Bundle` is to know that its leaf and key fit, that the provider can sign with the key, and that the
//! trust is what the files say. Nothing here touches the disk, the clock or a thread. Expiry is a warning here:
//! whether an expired certificate may replace a valid one is decided where both are known.

mod error;
mod input;
mod key;
mod leaf;
mod ocsp;
mod rules;
mod sentence;
mod text;
mod warning;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::sign::CertifiedKey;

use crate::trust::{CrlInput, Trust};
use input::{Chain, Identity};

pub use error::{BundleError, CaRule, Found};
pub use key::{Curve, KeyEncoding, KeyType};
pub use leaf::{Fingerprint, Leaf, Purpose, Validity, ValidityState};
pub use warning::{OcspProblem, Warning};

pub(crate) use input::parse_certificate;
pub(crate) use leaf::Date;
pub(crate) use rules::{anchor_is_ca, is_version_1_root, weak_key};
pub(crate) use text::name as subject_text;

/// One certificate chain with its key, and the trust that came with it: checked, and never changed.
///
/// What is *not* checked: signatures within the chain, whether a peer will trust it, revocation, and the dates
/// (they are [`warnings`](Self::warnings)).
pub struct Bundle {
    leaf: Arc<Leaf>,
    certified_key: Arc<CertifiedKey>,
    chain_not_after: i64,
    trust: Option<Arc<Trust>>,
    ocsp_next_update: Option<i64>,
    warnings: Vec<Warning>,
}

impl Bundle {
    /// Checks one generation of files.
    ///
    /// `provider` is asked to load the key, and so decides which kinds of keys are accepted; RSA below 2048 bits
    /// is refused whatever it says. `now` is used for warnings, and to tell whether an OCSP response is fresh.
    ///
    /// # Errors
    ///
    /// [`BundleError`] lists them. A CA or CRL file with one bad entry refuses everything: a peer must not be
    /// judged by half of it. An OCSP response that is stale, of the future, about another certificate, or says
    /// anything but "good" is not stapled and only a warning. Its signature is not looked at.
    pub fn from_pem(
        material: &Material<'_>,
        provider: &CryptoProvider,
        now: UnixTime,
    ) -> Result<Self, BundleError> {
        let mut warnings = Vec::new();
        let identity = Identity::from_pem(material.cert, material.key, &mut warnings)?;
        let mut bundle = Self::from_identity(identity, provider, now, warnings)?;
        if material.ca.is_some() || !material.crls.is_empty() {
            let trust = Trust::from_pem(material.ca, &material.crls, provider, now, &mut bundle.warnings)?;
            bundle.trust = Some(Arc::new(trust));
        }
        match material.ocsp {
            Some(response) => Ok(bundle.stapling(response, now)),
            None => Ok(bundle),
        }
    }

    /// Checks a chain, leaf first, and its key, without any file. There is no trust in it.
    ///
    /// The key's DER is overwritten after use, as far as the provider does so with what it is given; those of
    /// rustls do.
    ///
    /// # Errors
    ///
    /// As [`from_pem`](Self::from_pem), without those about PEM.
    pub fn from_der(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        provider: &CryptoProvider,
        now: UnixTime,
    ) -> Result<Self, BundleError> {
        Self::from_identity(Identity::from_der(chain, key)?, provider, now, Vec::new())
    }

    fn from_identity(
        identity: Identity,
        provider: &CryptoProvider,
        now: UnixTime,
        mut warnings: Vec<Warning>,
    ) -> Result<Self, BundleError> {
        let Identity { chain, keys } = identity;
        let (leaf, chain_not_after, key) = {
            let certificates = chain.parse()?;
            rules::leaf_is_usable(&chain, &certificates)?;
            let key = rules::one_key(&keys, &certificates, provider)?;
            rules::key_fits_leaf(&key, &certificates, &mut warnings)?;
            rules::warn(&certificates, now, &mut warnings);
            let leaf = certificates.first().map(Leaf::new).ok_or_else(no_certificate)?;
            let not_after = certificates.iter().map(|certificate| Validity::of(certificate).not_after);
            (leaf, not_after.min().unwrap_or(i64::MIN), key.signing)
        };
        let Chain { certificates, .. } = chain;
        Ok(Self {
            leaf: Arc::new(leaf),
            certified_key: Arc::new(CertifiedKey::new(certificates, key)),
            chain_not_after,
            trust: None,
            ocsp_next_update: None,
            warnings,
        })
    }

    /// The OCSP response that is configured is not there.
    pub(crate) fn without_staple(mut self) -> Self {
        self.warnings.push(Warning::OcspUnusable(OcspProblem::Missing));
        self
    }

    fn stapling(mut self, response: &[u8], now: UnixTime) -> Self {
        match ocsp::check(response, self.chain(), now) {
            Ok(fresh) => {
                self.ocsp_next_update = Some(fresh.next_update);
                let mut certified_key = CertifiedKey::clone(&self.certified_key);
                certified_key.ocsp = Some(response.to_vec());
                self.certified_key = Arc::new(certified_key);
            }
            Err(problem) => self.warnings.push(Warning::OcspUnusable(problem)),
        }
        self
    }

    /// The facts of the certificate that is served.
    pub fn leaf(&self) -> &Arc<Leaf> {
        &self.leaf
    }

    /// The certificates as they are sent, leaf first.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.certified_key.cert
    }

    /// Chain, key and staple as rustls takes them.
    pub fn certified_key(&self) -> &Arc<CertifiedKey> {
        &self.certified_key
    }

    /// When the stapled OCSP response becomes stale, in seconds since 1970; nothing where none is stapled. Nobody
    /// here takes it off by then: peers refuse a stale one.
    pub fn ocsp_next_update(&self) -> Option<i64> {
        self.ocsp_next_update
    }

    /// The same without its staple, whose time is over; `None` if it has none, or is fresh still.
    pub(crate) fn without_stale_staple(&self, now: UnixTime) -> Option<Self> {
        let next_update = self.ocsp_next_update?;
        if i64::try_from(now.as_secs()).unwrap_or(i64::MAX) <= next_update {
            return None;
        }
        let mut warnings = self.warnings.clone();
        warnings.push(Warning::OcspUnusable(OcspProblem::Stale { next_update }));
        Some(Self {
            leaf: Arc::clone(&self.leaf),
            certified_key: Arc::new(CertifiedKey { ocsp: None, ..CertifiedKey::clone(&self.certified_key) }),
            chain_not_after: self.chain_not_after,
            trust: self.trust.clone(),
            ocsp_next_update: None,
            warnings,
        })
    }

    /// What verifies the peer, if a CA or CRL file was given.
    pub fn trust(&self) -> Option<&Arc<Trust>> {
        self.trust.as_ref()
    }

    /// What was let pass, in the order of the files.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// The SHA-256 of the leaf's DER.
    pub fn fingerprint(&self) -> Fingerprint {
        self.leaf.fingerprint()
    }

    /// The earliest not-after of the whole chain, in seconds since 1970.
    pub fn chain_not_after(&self) -> i64 {
        self.chain_not_after
    }
}

impl fmt::Debug for Bundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bundle")
            .field("leaf", &self.leaf)
            .field("certificates", &self.chain().len())
            .field("trust", &self.trust)
            .field("stapled", &self.certified_key.ocsp.is_some())
            .field("warnings", &self.warnings)
            .finish_non_exhaustive()
    }
}

/// The raw bytes of one generation: what the files hold.
///
/// ```no_run
/// use rustls::pki_types::UnixTime;
/// use rustls_reload::{Bundle, Material};
///
/// fn check(cert: &[u8], key: &[u8], ca: &[u8]) -> Result<Bundle, rustls_reload::BundleError> {
///     # #[cfg(feature = "ring")]
///     let provider = rustls::crypto::ring::default_provider();
///     # #[cfg(not(feature = "ring"))]
///     # let provider = rustls::crypto::aws_lc_rs::default_provider();
///     Bundle::from_pem(&Material::new(cert, key).with_ca(ca), &provider, UnixTime::now())
/// }
/// ```
#[derive(Clone)]
pub struct Material<'a> {
    cert: &'a [u8],
    /// Nothing where the certificate file holds the key.
    key: Option<&'a [u8]>,
    ca: Option<&'a [u8]>,
    crls: Vec<CrlInput<'a>>,
    ocsp: Option<&'a [u8]>,
}

impl<'a> Material<'a> {
    /// A certificate chain and its key. Where the bytes are equal and hold a key, they are one file that was
    /// named twice, as [`combined`](Self::combined).
    pub fn new(cert: &'a [u8], key: &'a [u8]) -> Self {
        Self { key: Some(key), ..Self::combined(cert) }
    }

    /// One file that holds chain and key, in any order.
    pub fn combined(file: &'a [u8]) -> Self {
        Self { cert: file, key: None, ca: None, crls: Vec::new(), ocsp: None }
    }

    /// Adds the CA file.
    #[must_use]
    pub fn with_ca(self, ca: &'a [u8]) -> Self {
        Self { ca: Some(ca), ..self }
    }

    /// Adds a CRL file: PEM with any number of lists, or one list in DER. May be called repeatedly.
    #[must_use]
    pub fn with_crl(mut self, crl: &'a [u8]) -> Self {
        self.crls.push(CrlInput { path: None, bytes: crl });
        self
    }

    /// Adds a CRL file as [`with_crl`](Self::with_crl), with the path by which errors and warnings name it.
    #[must_use]
    pub fn with_crl_at(mut self, path: &'a Path, crl: &'a [u8]) -> Self {
        self.crls.push(CrlInput { path: Some(path), bytes: crl });
        self
    }

    /// Adds the OCSP response, DER.
    #[must_use]
    pub fn with_ocsp(self, response: &'a [u8]) -> Self {
        Self { ocsp: Some(response), ..self }
    }
}

impl fmt::Debug for Material<'_> {
    /// Sizes only: the bytes are a private key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Material")
            .field("cert", &self.cert.len())
            .field("key", &self.key.map(<[u8]>::len))
            .field("ca", &self.ca.map(<[u8]>::len))
            .field("crls", &self.crls.iter().map(|crl| crl.bytes.len()).collect::<Vec<_>>())
            .field("ocsp", &self.ocsp.map(<[u8]>::len))
            .finish()
    }
}

/// The facts of a certificate, what is worth a warning where it is served, and whether it could be an anchor.
#[cfg(fuzzing)]
pub(crate) fn facts(der: &CertificateDer<'_>, now: UnixTime) -> Option<(Leaf, Vec<Warning>, bool)> {
    let certificate = parse_certificate(der)?;
    let leaf = Leaf::new(&certificate);
    let is_anchor = anchor_is_ca(&certificate).is_ok();
    let mut warnings = Vec::new();
    rules::warn(&[certificate], now, &mut warnings);
    Some((leaf, warnings, is_anchor))
}

fn no_certificate() -> BundleError {
    BundleError::NoCertificate { role: crate::paths::Role::Cert, found: Found::default() }
}

#[cfg(test)]
pub(crate) mod made;
#[cfg(test)]
mod tests;
