//! Certificate authorities: self-signed roots and the intermediates below them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyUsagePurpose};
use rustls::pki_types::CertificateDer;

use super::crl::CrlBuilder;
use super::dates::{DAY, Period, date};
use super::key::{Key, KeyChoice, KeyType};
use super::leaf::LeafBuilder;
use super::{IssueError, leaf};

/// A CA that can issue: a root, or an intermediate of one.
///
/// Serial numbers are 1, 2, 3… for what one value issues. A CA whose key is used again by another value or
/// another process has to be told serials, or two certificates share one.
#[derive(Debug)]
pub struct Ca {
    params: CertificateParams,
    key: Key,
    certificate: rcgen::Certificate,
    pem: String,
    /// What a server sends after a leaf of this CA: itself and what is above it, without the root.
    chain: Vec<rcgen::Certificate>,
    serials: AtomicU64,
    crl_numbers: AtomicU64,
}

impl Ca {
    /// A root with a new P-256 key, valid from a day ago for ten years.
    ///
    /// # Errors
    ///
    /// As [`CaBuilder::build`].
    pub fn new(name: &str) -> Result<Self, IssueError> {
        Self::builder(name).build()
    }

    /// Starts a root whose common name is `name`.
    pub fn builder(name: &str) -> CaBuilder<'static> {
        CaBuilder::new(name, None)
    }

    /// Starts a CA below this one. What it issues comes with the chain up to, and without, the root.
    pub fn intermediate(&self, name: &str) -> CaBuilder<'_> {
        CaBuilder::new(name, Some(self))
    }

    /// Starts a certificate for a server. Each name is a DNS name (`*.` in front makes it a wildcard), an IP
    /// address or a URI; the first is the common name too.
    pub fn server(&self, names: &[&str]) -> LeafBuilder<'_> {
        LeafBuilder::server(self, names)
    }

    /// Starts a certificate for a client whose common name is `name`. Where that is a DNS name, an IP address
    /// or a URI (SPIFFE), it is the subject alternative name too.
    pub fn client(&self, name: &str) -> LeafBuilder<'_> {
        LeafBuilder::client(self, name)
    }

    /// Starts a revocation list of the certificates with these serial numbers.
    pub fn crl(&self, revoked: &[u64]) -> CrlBuilder<'_> {
        CrlBuilder::new(self, revoked)
    }

    /// The certificate of this CA as PEM.
    pub fn cert_pem(&self) -> &str {
        &self.pem
    }

    /// The certificate of this CA as DER.
    pub fn cert_der(&self) -> &CertificateDer<'static> {
        self.certificate.der()
    }

    /// The key of this CA.
    pub fn key(&self) -> &Key {
        &self.key
    }

    pub(super) fn issuer(&self) -> rcgen::Issuer<'_, &rcgen::KeyPair> {
        rcgen::Issuer::from_params(&self.params, self.key.pair())
    }

    pub(super) fn chain(&self) -> &[rcgen::Certificate] {
        &self.chain
    }

    pub(super) fn next_serial(&self) -> u64 {
        // Relaxed: the numbers have to differ, nothing else is ordered by them.
        self.serials.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn next_crl_number(&self) -> u64 {
        // Relaxed: as above.
        self.crl_numbers.fetch_add(1, Ordering::Relaxed)
    }
}

/// A [`Ca`] in the making.
#[derive(Debug)]
#[must_use = "nothing is made before `build`"]
pub struct CaBuilder<'ca> {
    issuer: Option<&'ca Ca>,
    name: String,
    key: KeyChoice,
    period: Period,
    serial: Option<u64>,
}

impl<'ca> CaBuilder<'ca> {
    fn new(name: &str, issuer: Option<&'ca Ca>) -> Self {
        Self {
            issuer,
            name: name.to_owned(),
            key: KeyChoice::New(KeyType::default()),
            period: Period::Around(DAY, 3_650 * DAY),
            serial: None,
        }
    }

    /// Sets the algorithm of the new key. Default: [`KeyType::EcdsaP256`].
    pub fn key_type(self, key_type: KeyType) -> Self {
        Self { key: KeyChoice::New(key_type), ..self }
    }

    /// Uses this key instead of a new one: the CA is renewed and signs as before.
    pub fn key(self, key: &Key) -> Self {
        Self { key: KeyChoice::Given(key.clone()), ..self }
    }

    /// Sets both ends of the validity, in Unix seconds. Default: from a day ago for ten years.
    pub fn validity(self, not_before: i64, not_after: i64) -> Self {
        Self { period: Period::Fixed(not_before, not_after), ..self }
    }

    /// Sets the end of the validity, counted from now.
    pub fn valid_for(self, duration: Duration) -> Self {
        Self { period: self.period.lasting(duration), ..self }
    }

    /// Sets the serial number. Default: the next one of the CA above; for a root, one derived from its key.
    pub fn serial(self, serial: u64) -> Self {
        Self { serial: Some(serial), ..self }
    }

    /// Makes the CA.
    ///
    /// # Errors
    ///
    /// - [`IssueError::Generate`]: the crypto backend cannot make such a key.
    /// - [`IssueError::Period`]: the validity is empty or outside 1950 to 9999.
    /// - [`IssueError::Sign`]: the crypto backend refused to sign.
    pub fn build(self) -> Result<Ca, IssueError> {
        let (not_before, not_after) = self.period.bounds()?;
        let key = self.key.take()?;
        let mut params = CertificateParams::default();
        params.not_before = date!(not_before);
        params.not_after = date!(not_after);
        params.distinguished_name = leaf::common_name(&self.name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.use_authority_key_identifier_extension = true;
        params.serial_number = self.serial.or_else(|| self.issuer.map(Ca::next_serial)).map(Into::into);

        let signed = match self.issuer {
            Some(above) => params.signed_by(key.pair(), &above.issuer()),
            None => params.self_signed(key.pair()),
        };
        let certificate = signed.map_err(|_| IssueError::Sign { what: "the CA certificate" })?;
        let chain = self.issuer.map_or_else(Vec::new, |above| {
            std::iter::once(&certificate).chain(above.chain()).cloned().collect()
        });
        Ok(Ca {
            pem: certificate.pem(),
            params,
            key,
            certificate,
            chain,
            serials: AtomicU64::new(1),
            crl_numbers: AtomicU64::new(1),
        })
    }
}
