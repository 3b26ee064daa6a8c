//! The current trust for a `ServerConfig` that somebody else made and keeps.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use crate::server::ClientAuth;
use crate::store::Store;

/// Verifies each client by the trust of the current generation.
///
/// For a framework that takes one `ServerConfig` for good. Two things cannot be had this way, so prefer the
/// config of each generation ([`Store::server_config`]):
///
/// - **Resumption must be off** in that config, or a client of a CA that was removed comes back in by a session
///   from before: rustls verifies nobody on resumption.
/// - No hints about the wanted CAs are sent to clients, who then have to know which certificate to show.
///
/// ```
/// # use std::sync::Arc;
/// # use rustls_reload::{ClientVerifier, Resolver, Store};
/// # fn fixed(store: Arc<Store>) -> rustls::ServerConfig {
/// let mut config = rustls::ServerConfig::builder_with_provider(Arc::clone(store.settings().provider()))
///     .with_safe_default_protocol_versions()
///     .expect("the provider has both versions")
///     .with_client_cert_verifier(Arc::new(ClientVerifier::new(Arc::clone(&store))))
///     .with_cert_resolver(Arc::new(Resolver::new(store)));
/// config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
/// config.send_tls13_tickets = 0;
/// # config
/// # }
/// ```
#[derive(Debug)]
pub struct ClientVerifier {
    store: Arc<Store>,
}

impl ClientVerifier {
    /// A verifier over `store`, whose settings say whether clients have to show a certificate.
    pub fn new(store: Arc<Store>) -> Self {
        Self { store }
    }

    fn current(&self) -> Result<Arc<dyn ClientCertVerifier>, Error> {
        let verifier = self.store.current().and_then(|generation| generation.client_verifier());
        verifier.ok_or_else(|| CertificateError::UnknownIssuer.into())
    }

    fn algorithms(&self) -> &rustls::crypto::WebPkiSupportedAlgorithms {
        &self.store.settings().provider().signature_verification_algorithms
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn offer_client_auth(&self) -> bool {
        self.store.settings().client_auth() != ClientAuth::None
    }

    fn client_auth_mandatory(&self) -> bool {
        self.store.settings().client_auth() == ClientAuth::Required
    }

    /// None: they would have to be borrowed from a value that is replaced.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.current()?.verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, self.algorithms())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, self.algorithms())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms().supported_schemes()
    }
}
