//! The facts of the certificate that is served, in a form that is safe to log and compare.
//!
//! Nothing is judged here. Names are kept as text with everything escaped that could forge a log line; the DER
//! stays with the chain.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rustls::pki_types::UnixTime;
use sha2::{Digest, Sha256};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::time::ASN1Time;

use super::KeyType;
use super::text;

/// What the served certificate says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    subject: String,
    issuer: String,
    serial: String,
    dns_names: Vec<String>,
    ip_addresses: Vec<IpAddr>,
    validity: Validity,
    fingerprint: Fingerprint,
    key_type: KeyType,
    spki_fingerprint: Fingerprint,
    purposes: Purposes,
}

impl Leaf {
    pub(super) fn new(certificate: &X509Certificate<'_>) -> Self {
        let (dns_names, ip_addresses) = alternative_names(certificate);
        let spki = certificate.public_key().raw;
        Self {
            subject: text::name(certificate.subject()),
            issuer: text::name(certificate.issuer()),
            serial: text::serial(certificate.raw_serial()),
            dns_names,
            ip_addresses,
            validity: Validity::of(certificate),
            fingerprint: Fingerprint::of(certificate.as_raw()),
            key_type: KeyType::of_spki(spki),
            spki_fingerprint: Fingerprint::of(spki),
            purposes: Purposes::of(certificate),
        }
    }

    /// The subject, in the style of RFC 4514 but in the order of the certificate; shortened if very long.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// The issuer, written like the subject.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// The serial number in lower-case hexadecimal, two digits a byte, without leading zero bytes.
    pub fn serial(&self) -> &str {
        &self.serial
    }

    /// The DNS names of the subjectAltName extension, in lower case, wildcards as they are.
    ///
    /// The subject's common name is not among them: TLS does not look there (RFC 9525 §2).
    pub fn dns_names(&self) -> &[String] {
        &self.dns_names
    }

    /// The IP addresses of the subjectAltName extension.
    pub fn ip_addresses(&self) -> &[IpAddr] {
        &self.ip_addresses
    }

    /// From when to when it is valid.
    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// The SHA-256 of its DER.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The kind of its key.
    pub fn key_type(&self) -> KeyType {
        self.key_type
    }

    /// The SHA-256 of its `SubjectPublicKeyInfo`: equal before and after a renewal that keeps the key.
    pub fn spki_fingerprint(&self) -> Fingerprint {
        self.spki_fingerprint
    }

    /// Whether its extended key usage allows `purpose`; without that extension everything is allowed
    /// (RFC 5280 §4.2.1.12).
    pub fn allows(&self, purpose: Purpose) -> bool {
        self.purposes.allow(purpose)
    }
}

/// What a certificate can be used for in TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Purpose {
    /// To be a server: `id-kp-serverAuth`.
    ServerAuth,
    /// To be a client: `id-kp-clientAuth`.
    ClientAuth,
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ServerAuth => "serverAuth",
            Self::ClientAuth => "clientAuth",
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Purposes {
    server_auth: bool,
    client_auth: bool,
}

impl Purposes {
    /// An extension that cannot be read allows nothing.
    pub(super) fn of(certificate: &X509Certificate<'_>) -> Self {
        let (server_auth, client_auth) = match certificate.extended_key_usage() {
            Ok(None) => (true, true),
            Ok(Some(usage)) => {
                (usage.value.server_auth || usage.value.any, usage.value.client_auth || usage.value.any)
            }
            Err(_) => (false, false),
        };
        Self { server_auth, client_auth }
    }

    pub(super) fn allow(self, purpose: Purpose) -> bool {
        match purpose {
            Purpose::ServerAuth => self.server_auth,
            Purpose::ClientAuth => self.client_auth,
        }
    }
}

/// A time as operators and logs write it (RFC 3339). What is beyond the calendar stays in seconds since 1970.
pub(crate) struct Date(pub(crate) i64);

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok(time) = ASN1Time::from_timestamp(self.0) else {
            return self.0.fmt(f);
        };
        let at = time.to_datetime();
        let (year, month, day) = (at.year(), u8::from(at.month()), at.day());
        write!(f, "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", at.hour(), at.minute(), at.second())
    }
}

/// From when to when a certificate is valid, both ends included (RFC 5280 §4.1.2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Validity {
    /// The first second, in seconds since 1970. May be negative.
    pub not_before: i64,
    /// The last second, in seconds since 1970. `99991231235959Z` (no end, RFC 5280 §4.1.2.5) is 253402300799.
    pub not_after: i64,
}

impl Validity {
    pub(crate) fn of(certificate: &X509Certificate<'_>) -> Self {
        Self {
            not_before: certificate.validity().not_before.timestamp(),
            not_after: certificate.validity().not_after.timestamp(),
        }
    }

    /// What it is at `now`.
    ///
    /// ```no_run
    /// use rustls::pki_types::UnixTime;
    /// use rustls_reload::{Bundle, ValidityState};
    ///
    /// fn is_expired(bundle: &Bundle) -> bool {
    ///     bundle.leaf().validity().at(UnixTime::now()) == ValidityState::Expired
    /// }
    /// ```
    pub fn at(&self, now: UnixTime) -> ValidityState {
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        if now > self.not_after {
            ValidityState::Expired
        } else if now < self.not_before {
            ValidityState::NotYetValid
        } else {
            ValidityState::Valid
        }
    }

    /// How many seconds it is valid in all; 0 if it ends before it starts.
    pub fn lifetime(&self) -> u64 {
        let seconds = self.not_after.saturating_sub(self.not_before).saturating_add(1);
        u64::try_from(seconds).unwrap_or(0)
    }
}

/// What a certificate is at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ValidityState {
    /// Before its not-before.
    NotYetValid,
    /// Valid.
    Valid,
    /// After its not-after. One that ends before it starts is never valid and counts as expired.
    Expired,
}

/// A SHA-256, shown in lower-case hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Of some DER.
    pub fn of(der: &[u8]) -> Self {
        Self(Sha256::digest(der).into())
    }

    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

fn alternative_names(certificate: &X509Certificate<'_>) -> (Vec<String>, Vec<IpAddr>) {
    let mut dns_names = Vec::new();
    let mut ip_addresses = Vec::new();
    let Ok(Some(names)) = certificate.subject_alternative_name() else {
        return (dns_names, ip_addresses);
    };
    for name in &names.value.general_names {
        match name {
            GeneralName::DNSName(name) => dns_names.push(text::dns_name(name)),
            GeneralName::IPAddress(octets) => ip_addresses.extend(ip_address(octets)),
            _ => {}
        }
    }
    (dns_names, ip_addresses)
}

fn ip_address(octets: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(octets).map(|octets| IpAddr::V4(Ipv4Addr::from(octets)));
    let v6 = <[u8; 16]>::try_from(octets).map(|octets| IpAddr::V6(Ipv6Addr::from(octets)));
    v4.or(v6).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs(seconds))
    }

    #[test]
    fn validity_includes_both_ends() {
        let validity = Validity { not_before: 10, not_after: 20 };
        for (now, expected) in [
            (9, ValidityState::NotYetValid),
            (10, ValidityState::Valid),
            (20, ValidityState::Valid),
            (21, ValidityState::Expired),
        ] {
            assert_eq!(validity.at(at(now)), expected, "{now}");
        }
        assert_eq!(validity.lifetime(), 11);
    }

    #[test]
    fn a_clock_at_zero_and_the_year_9999_work() {
        let endless = Validity { not_before: -1, not_after: 253_402_300_799 };
        assert_eq!(endless.at(at(0)), ValidityState::Valid);
        assert_eq!(endless.at(at(u64::MAX)), ValidityState::Expired);
        let absurd = Validity { not_before: i64::MIN, not_after: i64::MAX };
        assert_eq!(absurd.at(at(u64::MAX)), ValidityState::Valid);
        assert_eq!(absurd.lifetime(), u64::try_from(i64::MAX).unwrap());
        let reversed = Validity { not_before: 20, not_after: 10 };
        assert_eq!((reversed.at(at(15)), reversed.lifetime()), (ValidityState::Expired, 0));
    }

    #[test]
    fn only_addresses_of_the_right_length_are_addresses() {
        assert_eq!(ip_address(&[127, 0, 0, 1]), Some(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        assert_eq!(ip_address(&[0; 16]), Some(IpAddr::V6(Ipv6Addr::UNSPECIFIED)));
        assert_eq!(ip_address(&[0; 8]), None);
    }
}
