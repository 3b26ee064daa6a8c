//! Hands numbers of one reloader to whoever takes them, and keeps their panics away.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use log::error;
use rustls::HandshakeKind;

use super::{HandshakeFailure, Metrics, Subject};

/// Tells the metrics of one reloader what happens to its connections. For whoever does the handshakes.
///
/// Cheap to clone. A panic of the implementation is caught and counted, and said once. Does nothing where no
/// metrics are wanted.
///
/// ```no_run
/// use std::io;
///
/// use rustls::ServerConnection;
/// use rustls_reload::Reloader;
/// use rustls_reload::metrics::HandshakeFailure;
///
/// fn handshake(
///     reloader: &Reloader,
///     tls: &mut ServerConnection,
///     socket: &mut std::net::TcpStream,
/// ) -> io::Result<()> {
///     while tls.is_handshaking() {
///         tls.complete_io(socket).inspect_err(|error| {
///             reloader.reporter().handshake_failure(HandshakeFailure::of(error));
///         })?;
///     }
///     if let Some(kind) = tls.handshake_kind() {
///         reloader.reporter().handshake(kind);
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct Reporter {
    metrics: Option<Arc<dyn Metrics>>,
    subject: Subject,
    panics: Arc<AtomicU64>,
}

impl Reporter {
    pub(crate) fn new(metrics: Option<Arc<dyn Metrics>>, subject: Subject) -> Self {
        Self { metrics, subject, panics: Arc::default() }
    }

    /// A handshake was completed.
    pub fn handshake(&self, kind: HandshakeKind) {
        self.report(|metrics, subject| metrics.handshake(subject, kind));
    }

    /// A handshake failed.
    pub fn handshake_failure(&self, failure: HandshakeFailure) {
        self.report(|metrics, subject| metrics.handshake_failure(subject, failure));
    }

    /// Whom it reports about.
    pub fn subject(&self) -> &Subject {
        &self.subject
    }

    pub(crate) fn report(&self, tell: impl FnOnce(&dyn Metrics, &Subject)) {
        let Some(metrics) = &self.metrics else {
            return;
        };
        let told = catch_unwind(AssertUnwindSafe(|| tell(metrics.as_ref(), &self.subject)));
        if told.is_err() && self.panics.fetch_add(1, Ordering::Relaxed) == 0 {
            error!("identity={} metrics panicked; all else goes on", self.subject.identity());
        }
    }

    pub(crate) fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reporter").field("subject", &self.subject).finish_non_exhaustive()
    }
}
