//! What operators see: a trait for any metrics system, and an implementation for Prometheus.
//!
//! The calls come from the reload thread (the first ones from the thread that starts a reloader, the last one
//! from the thread that ends it), and those about handshakes from whoever serves. They are made outside every
//! lock, and a panic in one is caught and counted. Nothing here knows files, threads or the schedule.
//!
//! With the feature `prometheus`, all series of one process are one call away:
//!
//! ```no_run
//! # #[cfg(feature = "prometheus")]
//! # fn main() -> Result<(), rustls_reload::StartError> {
//! use prometheus_client::registry::Registry;
//! use rustls_reload::metrics::Prometheus;
//! use rustls_reload::{Paths, Reloader};
//!
//! let mut registry = Registry::default();
//! let metrics = Prometheus::register(&mut registry);
//! let reloader =
//!     Reloader::builder(Paths::secret("/etc/tls")).identity("relay").metrics(metrics).start()?;
//! # drop(reloader);
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "prometheus"))]
//! # fn main() {}
//! ```

mod failure;
#[cfg(feature = "prometheus")]
mod prometheus;
mod reporter;
mod subject;

pub use failure::HandshakeFailure;
#[cfg(feature = "prometheus")]
pub use prometheus::Prometheus;
pub use reporter::Reporter;
pub use subject::{Expiry, ExpiryKind, Subject};

pub(crate) use subject::Live;

use std::time::Duration;

use rustls::HandshakeKind;
use rustls::pki_types::UnixTime;

use crate::trigger::Trigger;

/// Takes what is worth counting. Every method has a default that does nothing.
///
/// Several reloaders may share an identity, so each call names its [`Subject`]. The methods are called by
/// several threads at once, and those of the reload thread delay it: they should only note and return.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// use rustls_reload::metrics::{Metrics, Subject};
///
/// #[derive(Default)]
/// struct Failures(AtomicU64);
///
/// impl Metrics for Failures {
///     fn reload_failure(&self, _: &Subject, _reason: &'static str) {
///         self.0.fetch_add(1, Ordering::Relaxed);
///     }
/// }
/// ```
#[expect(unused_variables, reason = "the names are the documentation")]
pub trait Metrics: Send + Sync {
    /// A reloader starts. Always the first call for it.
    fn registered(&self, subject: &Subject) {}

    /// It has ended, or did not start after all. Its series should end, unless others share its identity.
    fn removed(&self, subject: &Subject) {}

    /// The files were looked at. An unchanged resync is only this, and no attempt.
    fn checked(&self, subject: &Subject, result: ReloadResult, at: UnixTime) {}

    /// The files were read, and something came of it. The quick retries of the first second are no attempts
    /// of their own; what goes on failing is one each time.
    fn reload_attempt(&self, subject: &Subject, trigger: Trigger, result: ReloadResult) {}

    /// An attempt failed. The reason is one of [`RELOAD_FAILURES`].
    fn reload_failure(&self, subject: &Subject, reason: &'static str) {}

    /// From the first event to the new generation being served. Not called where no event led to it.
    fn reload_duration(&self, subject: &Subject, took: Duration) {}

    /// A new generation is served.
    fn set_generation(&self, subject: &Subject, number: u64) {}

    /// When what is served now begins and ends to be valid. A failed reload does not change it.
    fn set_expiry(&self, subject: &Subject, expiry: Expiry) {}

    /// Whether all is well; called when that changes. A thread that is stuck or gone cannot call:
    /// [`Subject::is_healthy`] knows of these too.
    fn set_healthy(&self, subject: &Subject, healthy: bool) {}

    /// A new generation was found by a resync, although the kernel should have told: the watch is broken.
    fn missed_event_swap(&self, subject: &Subject) {}

    /// Events were lost because a queue was full. Everything was looked at instead.
    fn watch_overflow(&self, subject: &Subject) {}

    /// A handshake was completed.
    fn handshake(&self, subject: &Subject, kind: HandshakeKind) {}

    /// A handshake failed.
    fn handshake_failure(&self, subject: &Subject, failure: HandshakeFailure) {}
}

/// What came of a look at the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReloadResult {
    /// A new generation is served.
    Swapped,
    /// They hold what is served already.
    Unchanged,
    /// What they hold cannot be served.
    Failed,
}

impl ReloadResult {
    /// All there are.
    pub const ALL: &'static [Self] = &[Self::Swapped, Self::Unchanged, Self::Failed];

    /// A short stable word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Swapped => "swapped",
            Self::Unchanged => "unchanged",
            Self::Failed => "failed",
        }
    }
}

/// What a connection runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConnectionState {
    /// On the generation that new connections get.
    Current,
    /// On an older one.
    Stale,
}

impl ConnectionState {
    /// All there are.
    pub const ALL: &'static [Self] = &[Self::Current, Self::Stale];

    /// A short stable word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Stale => "stale",
        }
    }
}

/// The reasons of [`Metrics::reload_failure`], which are those of
/// [`LoadError::reason`](crate::LoadError::reason). Fixed, so that every series can exist from the start.
pub const RELOAD_FAILURES: &[&str] = &[
    "bad_certificate",
    "bad_crl",
    "bad_key",
    "config",
    "denied",
    "io",
    "key_encoding",
    "key_in_ca_file",
    "key_mismatch",
    "key_too_small",
    "leaf_not_first",
    "link_loop",
    "no_certificate",
    "no_crl",
    "no_files",
    "no_key",
    "not_a_ca",
    "not_a_file",
    "not_found",
    "not_valid_now",
    "panicked",
    "pem_damaged",
    "pem_empty",
    "pem_encrypted_key",
    "pem_not_pem",
    "pem_torn",
    "pem_unread_label",
    "several_keys",
    "too_large",
    "too_many_names",
    "unsettled",
    "unsupported_key",
    "unusable_anchor",
    "unusable_leaf",
];
