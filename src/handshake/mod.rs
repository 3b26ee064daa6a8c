//! From an accepted connection to one that is encrypted, within a deadline, on the caller's thread.
//!
//! The generation is the one that is current when the ClientHello has come, and the trust is looked at once
//! more when the handshake is done. Nothing here reads a file or waits for a thread of the reloader.

mod stream;

pub use stream::TlsStream;

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{error, fmt};

use log::debug;
use rustls::server::{Accepted, Acceptor};
use rustls::{HandshakeKind, ServerConfig, ServerConnection};

use crate::bundle::Leaf;
use crate::connections::{Entry, Session};
use crate::metrics::{HandshakeFailure, Reporter};
use crate::socket::{SocketIo, Wait};
use crate::store::Store;

/// What all connections of a reloader need.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) store: Arc<Store>,
    pub(crate) reporter: Reporter,
}

/// A connection that was accepted; no byte was read from it yet. Made by
/// [`TlsListener::accept`](crate::TlsListener::accept).
///
/// To be given to the thread that will serve it: the handshake takes as long as the client does. Dropping it
/// closes the connection.
#[derive(Debug)]
#[must_use = "the client waits for a handshake"]
pub struct Pending {
    context: Arc<Context>,
    entry: Arc<Entry>,
}

impl Pending {
    /// What a client on a bad mobile link needs, and not more than a slow one may cost.
    pub const DEFAULT_LIMIT: Duration = Duration::from_secs(10);

    pub(crate) fn new(context: Arc<Context>, entry: Arc<Entry>) -> Self {
        Self { context, entry }
    }

    /// Where it comes from; `None` for a Unix socket.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.entry.peer()
    }

    /// Shakes hands on this thread, for at most `limit` in all, however the client spreads its bytes.
    ///
    /// Certificate, key and trust come from one generation: the current one at the time when the ClientHello
    /// is complete. If trust was withdrawn while the handshake ran, the client is judged once more by what is
    /// current at its end; so is a client with a certificate that resumes a session, since rustls does not do
    /// that.
    ///
    /// The outcome is counted in the metrics of the reloader, and a failure is a log line at debug level.
    ///
    /// # Errors
    ///
    /// [`HandshakeError`], with one word for the reason. An alert was sent where TLS has one for it
    /// (`close_notify` where a client is judged once more: for it the handshake is done), and up to 500 ms were
    /// spent, within `limit`, for the client to read it. The connection is closed.
    pub fn handshake(self, limit: Duration) -> Result<TlsStream, HandshakeError> {
        let wait = Wait::within(limit);
        let Self { context, entry } = self;
        match shake_hands(&context, &entry, wait) {
            Ok(Shaken { tls, kind, leaf }) => {
                context.reporter.handshake(kind);
                Ok(TlsStream::new(tls, context, entry, leaf))
            }
            Err(source) => {
                let error = HandshakeError { peer: entry.peer(), source };
                context.reporter.handshake_failure(error.failure());
                // Clients come and go as they like: not a line at info.
                debug!("identity={} {error}: {}", context.reporter.subject().identity(), error.source);
                if source_is_tls(&error.source) {
                    linger(&entry, wait);
                }
                Err(error)
            }
        }
    }
}

/// Why there is no connection.
#[derive(Debug)]
pub struct HandshakeError {
    peer: Option<SocketAddr>,
    source: io::Error,
}

impl HandshakeError {
    /// The reason, in one word.
    pub fn failure(&self) -> HandshakeFailure {
        HandshakeFailure::of(&self.source)
    }

    /// Where the client is; `None` for a Unix socket.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.peer
    }
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.peer {
            Some(peer) => write!(f, "{peer}: the TLS handshake failed")?,
            None => f.write_str("the TLS handshake failed")?,
        }
        write!(f, " ({})", self.failure().as_str())
    }
}

impl error::Error for HandshakeError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        Some(&self.source)
    }
}

impl From<HandshakeError> for io::Error {
    fn from(error: HandshakeError) -> Self {
        Self::new(error.source.kind(), error)
    }
}

/// What a handshake brought.
struct Shaken {
    tls: ServerConnection,
    kind: HandshakeKind,
    leaf: Arc<Leaf>,
}

fn shake_hands(context: &Context, entry: &Entry, wait: Wait) -> io::Result<Shaken> {
    let mut io = entry.socket().io(wait);
    let hello = client_hello(&mut io)?;
    let store = &context.store;
    let Some(generation) = store.current() else {
        let refused = connect(hello, store.refusing_config(), &mut io);
        return Err(refused.err().unwrap_or_else(|| io::Error::other("there is no certificate")));
    };
    let mut tls = connect(hello, generation.server_config(), &mut io)?;
    let kind = tls.handshake_kind().unwrap_or(HandshakeKind::Full);
    let client = tls.peer_certificates().unwrap_or_default().to_vec();
    let since = store.now();
    entry.establish(Session {
        generation: generation.number(),
        scope: generation.scope().clone(),
        client,
        since,
    });
    if let Err(error) = judge_again(store, entry, kind) {
        // For the client the handshake is done, and rustls has no call for an alert from then on.
        tls.send_close_notify();
        tls.write_tls(&mut io).ok();
        return Err(tls_error(error));
    }
    Ok(Shaken { tls, kind, leaf: Arc::clone(generation.bundle().leaf()) })
}

/// Reads until the ClientHello is there.
fn client_hello(io: &mut SocketIo<'_>) -> io::Result<Accepted> {
    let mut acceptor = Acceptor::default();
    loop {
        if acceptor.read_tls(io)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        match acceptor.accept() {
            Ok(Some(hello)) => return Ok(hello),
            Ok(None) => {}
            Err((error, mut alert)) => {
                // The peer may be gone: the handshake failed already.
                alert.write_all(io).ok();
                return Err(tls_error(error));
            }
        }
    }
}

/// The rest of the handshake. The last flight, with the tickets, is sent when this returns.
fn connect(
    hello: Accepted,
    config: Arc<ServerConfig>,
    io: &mut SocketIo<'_>,
) -> io::Result<ServerConnection> {
    let mut tls = hello.into_connection(config).map_err(|(error, mut alert)| {
        alert.write_all(io).ok();
        tls_error(error)
    })?;
    while tls.is_handshaking() {
        tls.complete_io(io)?;
    }
    while tls.wants_write() {
        tls.write_tls(io)?;
    }
    Ok(tls)
}

/// Whether the client would be let in now, where the handshake itself does not say so.
fn judge_again(store: &Store, entry: &Entry, kind: HandshakeKind) -> Result<(), rustls::Error> {
    let (Some(session), Some(current)) = (entry.session(), store.current()) else {
        return Ok(());
    };
    if kind != HandshakeKind::Resumed && current.upholds(&session.scope) {
        return Ok(());
    }
    current.judge_client(&session.client, session.since)
}

fn tls_error(error: rustls::Error) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}

/// Whether it was TLS that failed, so that there may be an alert for the client to read.
fn source_is_tls(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|error| error.is::<rustls::Error>())
}

fn linger(entry: &Entry, wait: Wait) {
    let limit = Instant::now() + LINGER;
    entry.socket().linger(wait.deadline().map_or(limit, |deadline| deadline.min(limit)));
}

/// For the client to read an alert.
const LINGER: Duration = Duration::from_millis(500);
