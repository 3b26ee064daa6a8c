//! Which sessions may be resumed: those made under trust that still stands, and not for too long.
//!
//! rustls never calls the verifier when it resumes a session, and takes the client's chain from the session.
//! So the place where sessions are kept has to end with the trust they came from: a scope is that place, both
//! for sessions that are stored here and for tickets that the client keeps (their key).

use std::fmt;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::{ProducesTickets, ServerSessionMemoryCache, StoresServerSessions};
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::{ClientAuth, ConfigError};
use crate::bundle::{Bundle, Validity};
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

/// Refuses what is older than [`LIFE`], and what holds a certificate that is not valid any more: with client
/// authentication rustls does not judge the client's certificate again for as long as its session lives. A
/// refusal is a full handshake, never a failed one, so a client that has a new certificate can show it.
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

    /// Takes the time off, and the value with it if it is too old, comes from the future, or has expired.
    fn open(&self, stamped: Vec<u8>) -> Option<Vec<u8>> {
        let (stamp, value) = stamped.split_first_chunk()?;
        let now = self.time.current_time()?.as_secs();
        let age = now.checked_sub(u64::from_be_bytes(*stamp))?;
        let expired =
            earliest_not_after(value).is_some_and(|end| i64::try_from(now).is_ok_and(|now| end < now));
        (age < u64::from(LIFE) && !expired).then(|| value.to_vec())
    }
}

/// The first not-after of the certificates in a session, in seconds since 1970.
///
/// How rustls lays a session out is its own affair, but the client's chain is in it as it came. So this looks
/// for certificates wherever they are. What looks like one within another is not looked for, and could only
/// make the session end earlier; if the chain were not found, it would end with [`LIFE`]. A session that is full
/// of what only looks like certificates has ended.
fn earliest_not_after(session: &[u8]) -> Option<i64> {
    let mut rest = session;
    let mut earliest = None;
    let mut failures = 0;
    while let [_, behind @ ..] = rest {
        // A SEQUENCE of over 255 bytes that begins with another one (RFC 5280 §4.1).
        rest = match rest {
            [0x30, 0x82, _, _, 0x30, 0x82, ..] => match X509Certificate::from_der(rest) {
                Ok((behind, certificate)) => {
                    let not_after = Validity::of(&certificate).not_after;
                    earliest = Some(earliest.map_or(not_after, |earliest: i64| earliest.min(not_after)));
                    behind
                }
                // What a client put into its chain beside certificates. Each look may take as long as it is.
                Err(_) if failures == LOOKS => return Some(i64::MIN),
                Err(_) => {
                    failures += 1;
                    behind
                }
            },
            _ => behind,
        };
    }
    earliest
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

/// How often what looks like a certificate may be none.
const LOOKS: u32 = 4;

/// How long a session lives with client authentication, in seconds.
const LIFE: u32 = 3600;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use rustls::pki_types::UnixTime;

    use super::*;
    use crate::issue::Ca;

    #[derive(Debug, Default)]
    struct Clock(AtomicU64);

    impl TimeProvider for Clock {
        fn current_time(&self) -> Option<UnixTime> {
            let seconds = self.0.load(Ordering::Relaxed);
            Some(UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds)))
        }
    }

    fn opens(session: &[u8], made: u64, now: u64) -> bool {
        let time = Arc::new(Clock::default());
        let limited = Limited { inner: Arc::new(()), time: Arc::<Clock>::clone(&time) };
        time.0.store(made, Ordering::Relaxed);
        let stamped = limited.stamp(session);
        time.0.store(now, Ordering::Relaxed);
        let opened = stamped.and_then(|stamped| limited.open(stamped));
        assert!(opened.as_deref().is_none_or(|opened| opened == session), "as it was put in");
        opened.is_some()
    }

    #[test]
    fn session_ends_after_an_hour_and_never_comes_from_the_future() {
        assert!(opens(b"session", 1000, 1000));
        assert!(opens(b"session", 1000, 1000 + 3599));
        assert!(!opens(b"session", 1000, 1000 + 3600));
        assert!(!opens(b"session", 1000, 999), "the clock was set back");
    }

    #[test]
    fn session_ends_with_the_first_certificate_of_its_chain() {
        let (begin, now) = (1_700_000_000, 1_700_010_000);
        let chain = |leaf_end: i64, ca_end: i64| {
            let root = Ca::builder("root").validity(begin, 4_000_000_000).build().unwrap();
            let issuing = root.intermediate("issuing").validity(begin, ca_end).build().unwrap();
            let chain = issuing.client("client").validity(begin, leaf_end).issue().unwrap().chain_der();
            assert_eq!(chain.len(), 2);
            // As rustls has it, or not: something before, between and behind.
            let bytes = chain.iter().flat_map(|certificate| [&[0, 3, 0x30, 0x82], &**certificate].concat());
            bytes.chain([0x30, 0x82, 1]).collect::<Vec<_>>()
        };
        let end = i64::try_from(now).unwrap() + 60;
        for session in [chain(end, end + 600), chain(end + 600, end)] {
            assert_eq!(earliest_not_after(&session), Some(end));
            assert!(opens(&session, now, now + 60));
            assert!(!opens(&session, now, now + 61));
        }
    }

    #[test]
    fn session_full_of_what_is_no_certificate_has_ended() {
        // Each look-alike claims the rest of the session: to parse them all would take quadratic time.
        let rubbish = [0x30, 0x82, 0x7f, 0xff, 0x30, 0x82, 0x7f, 0xff].repeat(4_000);
        assert_eq!(earliest_not_after(&rubbish), Some(i64::MIN));
        assert!(!opens(&rubbish, 1000, 1000));
        assert_eq!(earliest_not_after(&rubbish[..16]), None, "a few may be chance");
    }
}
