//! Certificates for servers and clients, and what comes with one.

use std::net::IpAddr;
use std::time::Duration;

use rcgen::{
    CertificateParams, CustomExtension, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyUsagePurpose, SanType,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use zeroize::Zeroizing;

use super::IssueError;
use super::authority::Ca;
use super::dates::{DAY, HOUR, Period, date};
use super::key::{Key, KeyChoice, KeyType};

/// A leaf certificate in the making: from [`Ca::server`], [`Ca::client`] or [`self_signed`](super::self_signed).
#[derive(Debug)]
#[must_use = "nothing is issued before `issue`"]
pub struct LeafBuilder<'ca> {
    issuer: Option<&'ca Ca>,
    purpose: Purpose,
    names: Vec<String>,
    key: KeyChoice,
    period: Period,
    serial: Option<u64>,
    ocsp: Vec<String>,
    ca_issuers: Vec<String>,
}

impl<'ca> LeafBuilder<'ca> {
    pub(super) fn server(issuer: &'ca Ca, names: &[&str]) -> Self {
        Self::new(Some(issuer), Purpose::Server, names)
    }

    pub(super) fn client(issuer: &'ca Ca, name: &str) -> Self {
        Self::new(Some(issuer), Purpose::Client, &[name])
    }

    pub(super) fn self_signed(names: &[&str]) -> Self {
        Self::new(None, Purpose::Server, names)
    }

    fn new(issuer: Option<&'ca Ca>, purpose: Purpose, names: &[&str]) -> Self {
        Self {
            issuer,
            purpose,
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            key: KeyChoice::New(KeyType::default()),
            period: Period::Around(HOUR, 90 * DAY),
            serial: None,
            ocsp: Vec::new(),
            ca_issuers: Vec::new(),
        }
    }

    /// Sets the algorithm of the new key. Default: [`KeyType::EcdsaP256`].
    pub fn key_type(self, key_type: KeyType) -> Self {
        Self { key: KeyChoice::New(key_type), ..self }
    }

    /// Uses this key instead of a new one, as a renewal does that keeps its key.
    pub fn key(self, key: &Key) -> Self {
        Self { key: KeyChoice::Given(key.clone()), ..self }
    }

    /// Sets both ends of the validity, in Unix seconds. Default: from an hour ago for 90 days.
    pub fn validity(self, not_before: i64, not_after: i64) -> Self {
        Self { period: Period::Fixed(not_before, not_after), ..self }
    }

    /// Sets the end of the validity, counted from now.
    pub fn valid_for(self, duration: Duration) -> Self {
        Self { period: self.period.lasting(duration), ..self }
    }

    /// Sets the serial number. Default: the next one of the CA; self-signed, one derived from the key.
    pub fn serial(self, serial: u64) -> Self {
        Self { serial: Some(serial), ..self }
    }

    /// Adds the URL of an OCSP responder (authority information access, RFC 5280 §4.2.2.1).
    pub fn ocsp_url(mut self, url: &str) -> Self {
        self.ocsp.push(url.to_owned());
        self
    }

    /// Adds the URL of the issuer's certificate (authority information access, RFC 5280 §4.2.2.1).
    pub fn ca_issuers_url(mut self, url: &str) -> Self {
        self.ca_issuers.push(url.to_owned());
        self
    }

    /// Issues the certificate.
    ///
    /// # Errors
    ///
    /// - [`IssueError::NoNames`], [`IssueError::Name`], [`IssueError::Url`]: what a certificate cannot hold.
    /// - [`IssueError::Period`]: the validity is empty or outside 1950 to 9999.
    /// - [`IssueError::Generate`]: the crypto backend cannot make such a key.
    /// - [`IssueError::Sign`]: the crypto backend refused to sign.
    pub fn issue(self) -> Result<Issued, IssueError> {
        let (not_before, not_after) = self.period.bounds()?;
        let common_name_of = self.names.first().ok_or(IssueError::NoNames)?;
        let mut params = CertificateParams::default();
        params.not_before = date!(not_before);
        params.not_after = date!(not_after);
        params.distinguished_name = common_name(common_name_of);
        params.subject_alt_names = self.alternative_names()?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![match self.purpose {
            Purpose::Server => ExtendedKeyUsagePurpose::ServerAuth,
            Purpose::Client => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        params.use_authority_key_identifier_extension = self.issuer.is_some();
        params.serial_number = self.serial.or_else(|| self.issuer.map(Ca::next_serial)).map(Into::into);
        if !self.ocsp.is_empty() || !self.ca_issuers.is_empty() {
            let content = authority_information(&self.ocsp, &self.ca_issuers)?;
            params.custom_extensions.push(CustomExtension::from_oid_content(AUTHORITY_INFO_ACCESS, content));
        }

        let key = self.key.take()?;
        let signed = match self.issuer {
            Some(ca) => params.signed_by(key.pair(), &ca.issuer()),
            None => params.self_signed(key.pair()),
        };
        let leaf = signed.map_err(|_| IssueError::Sign { what: "the certificate" })?;
        Ok(Issued { leaf, above: self.issuer.map_or_else(Vec::new, |ca| ca.chain().to_vec()), key })
    }

    fn alternative_names(&self) -> Result<Vec<SanType>, IssueError> {
        let mut found = Vec::new();
        for name in &self.names {
            match (alternative_name(name), self.purpose) {
                (Some(alternative), _) => found.push(alternative),
                // A client may be called anything: "pump 7" is a common name and no more.
                (None, Purpose::Client) => {}
                (None, Purpose::Server) => return Err(IssueError::Name { name: name.clone() }),
            }
        }
        Ok(found)
    }
}

/// A certificate with its chain and its key.
#[derive(Clone, Debug)]
pub struct Issued {
    leaf: rcgen::Certificate,
    /// What a server sends after the leaf.
    above: Vec<rcgen::Certificate>,
    key: Key,
}

impl Issued {
    /// Leaf and intermediates as PEM, leaf first, without the root: the `tls.crt` of a Secret.
    pub fn chain_pem(&self) -> String {
        self.chain().map(rcgen::Certificate::pem).collect()
    }

    /// The key as PEM (PKCS#8), in memory that is wiped on drop: the `tls.key` of a Secret.
    pub fn key_pem(&self) -> Zeroizing<String> {
        self.key.to_pem()
    }

    /// Leaf and intermediates as DER, leaf first, without the root.
    pub fn chain_der(&self) -> Vec<CertificateDer<'static>> {
        self.chain().map(|certificate| certificate.der().clone()).collect()
    }

    /// The leaf as DER.
    pub fn leaf_der(&self) -> &CertificateDer<'static> {
        self.leaf.der()
    }

    /// The key as DER (PKCS#8). The copy is the caller's to protect.
    pub fn key_der(&self) -> PrivateKeyDer<'static> {
        self.key.to_der()
    }

    /// The key, for another certificate with the same one.
    pub fn key(&self) -> &Key {
        &self.key
    }

    fn chain(&self) -> impl Iterator<Item = &rcgen::Certificate> {
        std::iter::once(&self.leaf).chain(&self.above)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Server,
    Client,
}

/// `id-pe-authorityInfoAccess`.
const AUTHORITY_INFO_ACCESS: &[u64] = &[1, 3, 6, 1, 5, 5, 7, 1, 1];
/// `id-ad-ocsp`, encoded.
const OCSP: &[u8] = &[0x06, 0x08, 0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x30, 0x01];
/// `id-ad-caIssuers`, encoded.
const CA_ISSUERS: &[u8] = &[0x06, 0x08, 0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x30, 0x02];
/// `SEQUENCE`, constructed.
const SEQUENCE: u8 = 0x30;
/// `uniformResourceIdentifier [6]` of `GeneralName`.
const URI: u8 = 0x86;

pub(super) fn common_name(name: &str) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    subject
}

fn alternative_name(name: &str) -> Option<SanType> {
    if let Ok(address) = name.parse::<IpAddr>() {
        Some(SanType::IpAddress(address))
    } else if name.contains("://") {
        name.try_into().ok().map(SanType::URI)
    } else if is_dns_name(name) {
        name.try_into().ok().map(SanType::DnsName)
    } else {
        None
    }
}

fn is_dns_name(name: &str) -> bool {
    let fits = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    name.len() <= 253 && name.strip_prefix("*.").unwrap_or(name).split('.').all(fits)
}

/// `AuthorityInfoAccessSyntax`: a sequence of pairs of a method and a URL.
fn authority_information(ocsp: &[String], ca_issuers: &[String]) -> Result<Vec<u8>, IssueError> {
    let methods = ocsp.iter().map(|url| (OCSP, url)).chain(ca_issuers.iter().map(|url| (CA_ISSUERS, url)));
    let mut descriptions = Vec::new();
    for (method, url) in methods {
        let too_odd = || IssueError::Url { url: url.clone() };
        if url.is_empty() || !url.is_ascii() {
            return Err(too_odd());
        }
        let location = der(URI, url.as_bytes()).ok_or_else(too_odd)?;
        descriptions.extend(der(SEQUENCE, &[method, &location].concat()).ok_or_else(too_odd)?);
    }
    der(SEQUENCE, &descriptions).ok_or_else(|| IssueError::Url { url: String::new() })
}

/// Tag, length (up to 65,535), content (X.690 §8.1).
fn der(tag: u8, content: &[u8]) -> Option<Vec<u8>> {
    let [high, low] = u16::try_from(content.len()).ok()?.to_be_bytes();
    let mut out = vec![tag];
    match (high, low) {
        (0, 0..=0x7f) => out.push(low),
        (0, _) => out.extend([0x81, low]),
        _ => out.extend([0x82, high, low]),
    }
    out.extend_from_slice(content);
    Some(out)
}
