//! The `ServerConfig` of one generation, built once by whoever publishes it and handed out by pointer.

mod scope;

pub(crate) use scope::{ScopeId, SessionScope};

use std::fmt;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    ClientHello, NoClientAuth, ResolvesServerCert, VerifierBuilderError, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;
use rustls::{DEFAULT_VERSIONS, ServerConfig};

use crate::bundle::Bundle;
use crate::trust::{CrlExpiry, Trust};

/// Whether clients have to show a certificate. They are verified against the CA file, never against the
/// roots of the operating system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientAuth {
    /// Clients are not asked.
    #[default]
    None,
    /// Clients are asked; one without a certificate is let in, one with a bad certificate is not.
    Optional,
    /// A client without a good certificate is refused.
    Required,
}

/// What every generation's `ServerConfig` has in common.
#[derive(Clone)]
pub struct ServerSettings {
    provider: Arc<CryptoProvider>,
    time_provider: Option<Arc<dyn TimeProvider>>,
    client_auth: ClientAuth,
    crl_expiry: CrlExpiry,
    alpn: Vec<Vec<u8>>,
    adjust: Option<Adjust>,
}

/// The caller's hook, see [`ServerSettings::with_adjustment`].
type Adjust = Arc<dyn Fn(&mut ServerConfig) + Send + Sync>;

impl ServerSettings {
    /// TLS 1.2 and 1.3 as `provider` has them, no client authentication, no ALPN.
    pub fn new(provider: Arc<CryptoProvider>) -> Self {
        Self {
            provider,
            time_provider: None,
            client_auth: ClientAuth::None,
            crl_expiry: CrlExpiry::default(),
            alpn: Vec::new(),
            adjust: None,
        }
    }

    /// Whether clients are verified. Default: they are not.
    #[must_use]
    pub fn with_client_auth(self, client_auth: ClientAuth) -> Self {
        Self { client_auth, ..self }
    }

    /// What a revocation list that has expired means for clients. Default: [`CrlExpiry::Warn`].
    #[must_use]
    pub fn with_crl_expiry(self, crl_expiry: CrlExpiry) -> Self {
        Self { crl_expiry, ..self }
    }

    /// The application protocols, most wanted first (RFC 7301). Default: none.
    #[must_use]
    pub fn with_alpn<P: Into<Vec<u8>>>(self, protocols: impl IntoIterator<Item = P>) -> Self {
        Self { alpn: protocols.into_iter().map(Into::into).collect(), ..self }
    }

    /// The clock that peers are verified by. Default: the one of the operating system.
    #[must_use]
    pub fn with_time_provider(self, time_provider: Arc<dyn TimeProvider>) -> Self {
        Self { time_provider: Some(time_provider), ..self }
    }

    /// Changes each generation's config before it is used, on the thread that publishes.
    ///
    /// Session storage and tickets are set after the hook ran, and early data is off: sessions must end with the
    /// trust they came from.
    #[must_use]
    pub fn with_adjustment(self, adjust: impl Fn(&mut ServerConfig) + Send + Sync + 'static) -> Self {
        Self { adjust: Some(Arc::new(adjust)), ..self }
    }

    /// The crypto provider that keys are loaded with.
    pub fn provider(&self) -> &Arc<CryptoProvider> {
        &self.provider
    }

    /// Whether clients are verified.
    pub fn client_auth(&self) -> ClientAuth {
        self.client_auth
    }

    /// The clock that was given.
    pub(crate) fn time_provider(&self) -> Option<&Arc<dyn TimeProvider>> {
        self.time_provider.as_ref()
    }

    pub(crate) fn build(
        &self,
        bundle: &Bundle,
        verifier: Arc<dyn ClientCertVerifier>,
        scope: &SessionScope,
    ) -> Result<ServerConfig, ConfigError> {
        let pinned = Pinned { key: Some(Arc::clone(bundle.certified_key())) };
        let mut config = self.config(verifier, Arc::new(pinned))?;
        scope.install(&mut config);
        Ok(config)
    }

    /// A config that refuses every handshake, for as long as there is no certificate.
    pub(crate) fn build_refusing(&self) -> Result<ServerConfig, ConfigError> {
        let mut config = self.config(Arc::new(NoClientAuth), Arc::new(Pinned { key: None }))?;
        // Whatever the hook did: nobody is verified here, so nobody gets in.
        config.cert_resolver = Arc::new(Pinned { key: None });
        Ok(config)
    }

    fn config(
        &self,
        verifier: Arc<dyn ClientCertVerifier>,
        resolver: Arc<dyn ResolvesServerCert>,
    ) -> Result<ServerConfig, ConfigError> {
        let provider = Arc::clone(&self.provider);
        let builder = match &self.time_provider {
            Some(time) => ServerConfig::builder_with_details(provider, Arc::clone(time)),
            None => ServerConfig::builder_with_provider(provider),
        };
        let mut config = builder
            .with_protocol_versions(DEFAULT_VERSIONS)
            .map_err(ConfigError::Provider)?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(resolver);
        config.alpn_protocols.clone_from(&self.alpn);
        let ticketer = Arc::clone(&config.ticketer);
        if let Some(adjust) = &self.adjust {
            adjust(&mut config);
        }
        // The scope brings its own, if it has any. Early data could be replayed, and no verifier is asked.
        config.ticketer = ticketer;
        config.max_early_data_size = 0;
        Ok(config)
    }

    pub(crate) fn client_verifier(
        &self,
        trust: Option<&Arc<Trust>>,
    ) -> Result<Arc<dyn ClientCertVerifier>, ConfigError> {
        if self.client_auth == ClientAuth::None {
            return Ok(Arc::new(NoClientAuth));
        }
        let trust = trust.ok_or(ConfigError::NoClientCa)?;
        let provider = Arc::clone(&self.provider);
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::clone(trust.roots()), provider)
            .with_crls(trust.crls().iter().cloned());
        let builder = match self.crl_expiry {
            CrlExpiry::Enforce => builder.enforce_revocation_expiration(),
            CrlExpiry::Warn => builder,
        };
        let builder = match self.client_auth {
            ClientAuth::Optional => builder.allow_unauthenticated(),
            ClientAuth::Required | ClientAuth::None => builder,
        };
        Ok(builder.build()?)
    }
}

impl fmt::Debug for ServerSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerSettings")
            .field("client_auth", &self.client_auth)
            .field("alpn", &self.alpn)
            .finish_non_exhaustive()
    }
}

/// Always the certificate of one generation, so that a handshake never sees two.
#[derive(Debug)]
struct Pinned {
    key: Option<Arc<CertifiedKey>>,
}

impl ResolvesServerCert for Pinned {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.key.clone()
    }
}

/// Why no config could be built from a bundle.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Clients are to be verified, but nothing says by which CA.
    #[error("clients are to be verified, but no CA is configured")]
    NoClientCa,
    /// Servers are to be verified, but there is no root to verify them by.
    #[error("servers are to be verified, but no CA is configured")]
    NoServerCa,
    /// The roots of the operating system are asked for, and there are none.
    #[error(
        "the roots of the operating system are asked for, and there are none (is the feature `system-roots` on?)"
    )]
    NoSystemRoots,
    /// The crypto provider has no cipher suite for TLS 1.2 or 1.3.
    #[error("the crypto provider cannot be used")]
    Provider(#[source] rustls::Error),
    /// The CA or its CRLs cannot be used to verify peers.
    #[error("the CA cannot be used to verify peers")]
    Verifier(#[from] VerifierBuilderError),
}
