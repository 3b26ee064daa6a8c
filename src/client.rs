//! The `ClientConfig` of one generation: its roots, and its certificate where the server asks for one.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::ServerCertVerifier;
use rustls::client::{ResolvesClientCert, Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, DEFAULT_VERSIONS, RootCertStore, SignatureScheme};

use crate::bundle::Bundle;
use crate::server::ConfigError;
use crate::trust::{CrlExpiry, Trust, system_roots};

/// Which roots verify servers.
///
/// For a private PKI take [`ServerRoots::FileOnly`]: the pool of the operating system lets any public CA speak
/// for your servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerRoots {
    /// The roots of the operating system, and the CA file where one is configured.
    #[default]
    SystemAndFile,
    /// The CA file alone.
    FileOnly,
    /// The roots of the operating system alone.
    SystemOnly,
}

/// What every generation's `ClientConfig` has in common.
#[derive(Clone)]
pub struct ClientSettings {
    provider: Arc<CryptoProvider>,
    time_provider: Option<Arc<dyn TimeProvider>>,
    roots: ServerRoots,
    crl_expiry: CrlExpiry,
    alpn: Vec<Vec<u8>>,
    adjust: Option<Adjust>,
}

/// The caller's hook, see [`ClientSettings::with_adjustment`].
type Adjust = Arc<dyn Fn(&mut ClientConfig) + Send + Sync>;

impl ClientSettings {
    /// TLS 1.2 and 1.3 as `provider` has them, verifying servers by `roots`, no ALPN.
    pub fn new(provider: Arc<CryptoProvider>, roots: ServerRoots) -> Self {
        Self {
            provider,
            time_provider: None,
            roots,
            crl_expiry: CrlExpiry::default(),
            alpn: Vec::new(),
            adjust: None,
        }
    }

    /// What a revocation list that has expired means for servers. Default: [`CrlExpiry::Warn`].
    #[must_use]
    pub fn with_crl_expiry(self, crl_expiry: CrlExpiry) -> Self {
        Self { crl_expiry, ..self }
    }

    /// The application protocols, most wanted first (RFC 7301). Default: none.
    #[must_use]
    pub fn with_alpn<P: Into<Vec<u8>>>(self, protocols: impl IntoIterator<Item = P>) -> Self {
        Self { alpn: protocols.into_iter().map(Into::into).collect(), ..self }
    }

    /// The clock that servers are verified by. Default: the one of the operating system.
    #[must_use]
    pub fn with_time_provider(self, time_provider: Arc<dyn TimeProvider>) -> Self {
        Self { time_provider: Some(time_provider), ..self }
    }

    /// Changes each generation's config before it is used, on the thread that publishes. The resumption is set
    /// after the hook ran.
    #[must_use]
    pub fn with_adjustment(self, adjust: impl Fn(&mut ClientConfig) + Send + Sync + 'static) -> Self {
        Self { adjust: Some(Arc::new(adjust)), ..self }
    }

    pub(crate) fn build(&self, scope: &ClientScope) -> Result<ClientConfig, ConfigError> {
        let provider = Arc::clone(&self.provider);
        let builder = match &self.time_provider {
            Some(time) => ClientConfig::builder_with_details(provider, Arc::clone(time)),
            None => ClientConfig::builder_with_provider(provider),
        };
        let mut config = builder
            .with_protocol_versions(DEFAULT_VERSIONS)
            .map_err(ConfigError::Provider)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&scope.verifier))
            .with_client_cert_resolver(Arc::clone(&scope.resolver));
        config.alpn_protocols.clone_from(&self.alpn);
        if let Some(adjust) = &self.adjust {
            adjust(&mut config);
        }
        config.resumption = scope.resumption.clone();
        Ok(config)
    }

    fn verifier(&self, trust: Option<&Arc<Trust>>) -> Result<Arc<dyn ServerCertVerifier>, ConfigError> {
        let file = trust.filter(|_| self.roots != ServerRoots::SystemOnly);
        let mut roots = RootCertStore::empty();
        if self.roots != ServerRoots::FileOnly {
            roots.extend(system_roots().ok_or(ConfigError::NoSystemRoots)?.roots.iter().cloned());
        }
        if let Some(file) = file {
            roots.extend(file.roots().roots.iter().cloned());
        }
        if roots.is_empty() {
            return Err(ConfigError::NoServerCa);
        }
        let crls = file.map(|trust| trust.crls().to_vec()).unwrap_or_default();
        let provider = Arc::clone(&self.provider);
        let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).with_crls(crls);
        let builder = match self.crl_expiry {
            CrlExpiry::Enforce => builder.enforce_revocation_expiration(),
            CrlExpiry::Warn => builder,
        };
        Ok(builder.build()?)
    }
}

impl fmt::Debug for ClientSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientSettings")
            .field("roots", &self.roots)
            .field("alpn", &self.alpn)
            .finish_non_exhaustive()
    }
}

/// What a resumed session rests on. rustls resumes only with the very same verifier and resolver, so both are
/// kept for as long as trust and certificate are unchanged; a change of either begins anew.
#[derive(Clone, Debug)]
pub(crate) struct ClientScope {
    verifier: Arc<dyn ServerCertVerifier>,
    resolver: Arc<dyn ResolvesClientCert>,
    resumption: Resumption,
    trust: Option<Arc<Trust>>,
    key: Arc<CertifiedKey>,
}

impl ClientScope {
    pub(crate) fn following(
        previous: Option<&Self>,
        bundle: &Bundle,
        settings: &ClientSettings,
    ) -> Result<Self, ConfigError> {
        let trust = bundle.trust();
        let key = bundle.certified_key();
        let same_trust = previous.filter(|previous| match (&previous.trust, trust) {
            (Some(before), Some(now)) => {
                now.fingerprints() == before.fingerprints() && now.crls() == before.crls()
            }
            (before, now) => before.is_none() && now.is_none(),
        });
        // A leaf names its key, so the chain tells all.
        let same_key = previous.filter(|previous| previous.key.cert == key.cert);
        Ok(Self {
            verifier: match same_trust {
                Some(previous) => Arc::clone(&previous.verifier),
                None => settings.verifier(trust)?,
            },
            resolver: match same_key {
                Some(previous) => Arc::clone(&previous.resolver),
                None => Arc::new(Pinned { key: Arc::clone(key) }),
            },
            resumption: match same_trust.and(same_key) {
                Some(previous) => previous.resumption.clone(),
                None => Resumption::default(),
            },
            trust: trust.cloned(),
            key: Arc::clone(key),
        })
    }
}

/// Always the certificate of one generation.
#[derive(Debug)]
struct Pinned {
    key: Arc<CertifiedKey>,
}

impl ResolvesClientCert for Pinned {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.key))
    }

    fn has_certs(&self) -> bool {
        true
    }
}
