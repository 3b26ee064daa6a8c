//! Certificate revocation lists.

use rcgen::{CertificateRevocationListParams, KeyIdMethod, RevokedCertParams};
use rustls::pki_types::CertificateRevocationListDer;

use super::IssueError;
use super::authority::Ca;
use super::dates::{DAY, HOUR, Period, date};

/// A revocation list in the making: from [`Ca::crl`].
#[derive(Debug)]
#[must_use = "nothing is issued before `issue`"]
pub struct CrlBuilder<'ca> {
    issuer: &'ca Ca,
    revoked: Vec<u64>,
    period: Period,
    number: Option<u64>,
}

impl<'ca> CrlBuilder<'ca> {
    pub(super) fn new(issuer: &'ca Ca, revoked: &[u64]) -> Self {
        Self { issuer, revoked: revoked.to_vec(), period: Period::Around(HOUR, 7 * DAY), number: None }
    }

    /// Sets when the list was made and when its successor is due, in Unix seconds. Default: an hour ago, and
    /// seven days from now.
    pub fn updates(self, this_update: i64, next_update: i64) -> Self {
        Self { period: Period::Fixed(this_update, next_update), ..self }
    }

    /// Sets the number of the list. Default: 1, 2, 3… for what this CA issues.
    pub fn number(self, number: u64) -> Self {
        Self { number: Some(number), ..self }
    }

    /// Issues the list. Every certificate on it counts as revoked since `this_update`, without a reason.
    ///
    /// # Errors
    ///
    /// - [`IssueError::Period`]: the next update is not after this one, or one is outside 1950 to 9999.
    /// - [`IssueError::Sign`]: the crypto backend refused to sign.
    pub fn issue(self) -> Result<Crl, IssueError> {
        let what = "the revocation list";
        let (this_update, next_update) = self.period.bounds()?;
        let number = self.number.unwrap_or_else(|| self.issuer.next_crl_number());
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: (*serial).into(),
            revocation_time: date!(this_update),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date!(this_update),
            next_update: date!(next_update),
            crl_number: number.into(),
            issuing_distribution_point: None,
            revoked_certs: self.revoked.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        }
        .signed_by(&self.issuer.issuer())
        .map_err(|_| IssueError::Sign { what })?;
        Ok(Crl { pem: list.pem().map_err(|_| IssueError::Sign { what })?, der: list.der().clone() })
    }
}

/// A revocation list.
#[derive(Clone, Debug)]
pub struct Crl {
    pem: String,
    der: CertificateRevocationListDer<'static>,
}

impl Crl {
    /// The list as PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// The list as DER.
    pub fn der(&self) -> &CertificateRevocationListDer<'static> {
        &self.der
    }
}
