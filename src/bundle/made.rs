//! Certificates for the unit tests, made in code.

use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::UnixTime;

use super::{Bundle, BundleError, Material};

/// A certificate with its key.
pub(crate) struct Made {
    pub(crate) pem: String,
    pub(crate) der: Vec<u8>,
    pub(crate) params: CertificateParams,
    pub(crate) key: KeyPair,
}

impl Made {
    /// Valid from 2020 to 2030, for `name`; `change` has the last word.
    pub(crate) fn new(
        name: &str,
        issuer: Option<&Self>,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Self {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.remove(DnType::CommonName);
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2030, 1, 1);
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = match issuer {
            Some(issuer) => params.signed_by(&key, &issuer.issuer()),
            None => params.self_signed(&key),
        };
        let certificate = certificate.unwrap();
        Self { pem: certificate.pem(), der: certificate.der().to_vec(), params, key }
    }

    pub(crate) fn leaf(issuer: &Self) -> Self {
        Self::new("relay.test", Some(issuer), |_| {})
    }

    pub(crate) fn root(name: &str) -> Self {
        Self::new(name, None, authority)
    }

    pub(crate) fn intermediate(name: &str, issuer: &Self) -> Self {
        Self::new(name, Some(issuer), authority)
    }

    pub(crate) fn issuer(&self) -> Issuer<'_, &KeyPair> {
        Issuer::from_params(&self.params, &self.key)
    }

    pub(crate) fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }
}

pub(crate) fn authority(params: &mut CertificateParams) {
    params.subject_alt_names.clear();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
}

pub(crate) fn load(material: Material<'_>) -> Result<Bundle, BundleError> {
    Bundle::from_pem(&material, &provider(), now())
}

pub(crate) fn provider() -> CryptoProvider {
    #[cfg(feature = "ring")]
    return rustls::crypto::ring::default_provider();
    #[cfg(not(feature = "ring"))]
    return rustls::crypto::aws_lc_rs::default_provider();
}

/// 2025-01-01.
pub(crate) fn now() -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(1_735_689_600))
}
