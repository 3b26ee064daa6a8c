//! Which sessions may be resumed: those made under trust that still stands, and not for too long.
//!
//! rustls never calls the verifier when it resumes a session, and takes the client's chain from the session.
//! So the place where sessions are kept has to end with the trust they came from: a scope is that place, both
//! for sessions that are stored here and for tickets that the client keeps (their key).

use std::fmt;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::UnixTime;
use rustls::server::{ProducesTickets, ServerSessionMemoryCache, StoresServerSessions};
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};

use super::{ClientAuth, ConfigError};
use crate::bundle::Bundle;
use crate::trust::Trust;

/// The sessions of one or more generations.
#[derive(Clone, Debug)]
pub(crate) struct SessionScope {
    id: ScopeId,
    storage: Arc<dyn StoresServerSessions>,
    /// `None` if the crate is built without a provider of its own: then sessions are stored.
    tickets: Option<Arc<dyn ProducesTickets>>,
    trust: Option<Arc<Trust>>,
}

impl SessionScope {
    /// The scope of `bundle`, given the one before: the same, unless trust was taken away or its CRLs changed.
    ///
    /// A handshake that began under the old trust and ends later leaves its session in the old scope.
    pub(crate) fn following(
        previous: Option<&Self>,
        bundle: &Bundle,
        client_auth: ClientAuth,
        time: Option<&Arc<dyn TimeProvider>>,
    ) -> Result<Self, ConfigError> {
        let trust = bundle.trust().cloned();
        let upheld = |previous: &&Self| match (&previous.trust, &trust) {
            _ if client_auth == ClientAuth::None => true,
            (Some(before), Some(now)) => upholds(now, before),
            (None, _) => true,
            (Some(_), None) => false,
        };
        match previous.filter(upheld) {
            Some(previous) => Ok(Self { trust, ..previous.clone() }),
            None => Self::fresh(trust, client_auth, time),
        }
    }

    /// Which scope it is, without keeping it.
    pub(crate) fn id(&self) -> &ScopeId {
        &self.id
    }

    /// Puts the scope into a config, whatever was there.
    pub(crate) fn install(&self, config: &mut ServerConfig) {
        config.session_storage = Arc::clone(&self.storage);
        if let Some(tickets) = &self.tickets {
            config.ticketer = Arc::clone(tickets);
        }
    }

    fn fresh(
        trust: Option<Arc<Trust>>,
        client_auth: ClientAuth,
        time: Option<&Arc<dyn TimeProvider>>,
    ) -> Result<Self, ConfigError> {
        let storage: Arc<dyn StoresServerSessions> = ServerSessionMemoryCache::new(SESSIONS);
        let tickets = new_tickets().map_err(ConfigError::Provider)?;
        if client_auth == ClientAuth::None {
            return Ok(Self { id: ScopeId::default(), storage, tickets, trust });
        }
        let time: Arc<dyn TimeProvider> = match time {
            Some(time) => Arc::clone(time),
            None => Arc::new(DefaultTimeProvider),
        };
        let limited = |tickets| Arc::new(Limited { inner: tickets, time: Arc::clone(&time) });
        Ok(Self {
            id: ScopeId::default(),
            storage: Arc::new(Limited { inner: storage, time: Arc::clone(&time) }),
            tickets: tickets.map(|tickets| -> Arc<dyn ProducesTickets> { limited(tickets) }),
            trust,
        })
    }
}

/// Tells scopes apart. Equal as long as no trust was taken away.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScopeId(Arc<()>);

impl PartialEq for ScopeId {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Whether everything that `before` accepted and refused, `now` does too.
fn upholds(now: &Trust, before: &Trust) -> bool {
    now.fingerprints().is_superset(before.fingerprints()) && now.crls() == before.crls()
}

/// Tickets that only this process can read, under keys that it replaces every six hours.
fn new_tickets() -> Result<Option<Arc<dyn ProducesTickets>>, rustls::Error> {
    #[cfg(feature = "ring")]
    let tickets = Some(rustls::crypto::ring::Ticketer::new()?);
    #[cfg(all(feature = "aws-lc-rs", not(feature = "ring")))]
    let tickets = Some(rustls::crypto::aws_lc_rs::Ticketer::new()?);
    #[cfg(not(any(feature = "ring", feature = "aws-lc-rs")))]
    let tickets = None;
    Ok(tickets)
}

/// Refuses what is older than [`LIFE`]: with client authentication nobody judges the client's certificate
/// again for as long as its session lives. A refusal is a full handshake, never a failed one.
struct Limited<T: ?Sized> {
    time: Arc<dyn TimeProvider>,
    inner: Arc<T>,
}

impl<T: ?Sized> Limited<T> {
    /// Puts the time in front of `value`.
    fn stamp(&self, value: &[u8]) -> Option<Vec<u8>> {
        let now = self.time.current_time()?.as_secs();
        Some([&now.to_be_bytes(), value].concat())
    }

    /// Takes the time off, and the value with it if it is too old or comes from the future.
    fn open(&self, stamped: Vec<u8>) -> Option<Vec<u8>> {
        let (stamp, value) = stamped.split_first_chunk()?;
        let made = UnixTime::since_unix_epoch(std::time::Duration::from_secs(u64::from_be_bytes(*stamp)));
        let age = self.time.current_time()?.as_secs().checked_sub(made.as_secs())?;
        (age < u64::from(LIFE)).then(|| value.to_vec())
    }
}

impl StoresServerSessions for Limited<dyn StoresServerSessions> {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.stamp(&value).is_some_and(|stamped| self.inner.put(key, stamped))
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.open(self.inner.get(key)?)
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.open(self.inner.take(key)?)
    }

    fn can_cache(&self) -> bool {
        self.inner.can_cache()
    }
}

impl ProducesTickets for Limited<dyn ProducesTickets> {
    fn enabled(&self) -> bool {
        self.inner.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.inner.lifetime().min(LIFE)
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.inner.encrypt(&self.stamp(plain)?)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.open(self.inner.decrypt(cipher)?)
    }
}

impl<T: ?Sized> fmt::Debug for Limited<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limited").finish_non_exhaustive()
    }
}

/// Stored sessions, each of some hundred bytes and, with client authentication, the client's chain; the oldest
/// is forgotten first.
const SESSIONS: usize = 1024;

/// How long a session lives with client authentication, in seconds.
const LIFE: u32 = 3600;
