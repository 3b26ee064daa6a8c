//! Accepts connections and hands them out before their handshake, until it is shut down.

mod queue;

use std::fmt;
use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use log::{info, warn};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags};

use self::queue::{Listening, Trouble};
use crate::connections::{Drained, Origin, Registry};
use crate::handshake::{Context, Pending};
use crate::reload::Reloader;
use crate::socket::poll_until;
use crate::sys;

/// Listens for TLS connections, each of which gets the certificate and the trust of its moment.
///
/// Has no thread of its own. [`accept`](Self::accept) never waits for a client to speak: it hands out a
/// [`Pending`], and the handshake runs on the thread that will serve the connection.
///
/// A clone is another handle to the same; several threads may accept at once. It keeps its reloader alive. With
/// the last handle the socket is closed; connections that are open stay so.
///
/// ```no_run
/// use std::io::Write as _;
/// use std::time::Duration;
///
/// use rustls_reload::{Paths, Pending, Reloader, TlsListener};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let reloader = Reloader::builder(Paths::secret("/etc/tls")).start()?;
/// let listener = TlsListener::bind("0.0.0.0:8443", &reloader)?;
/// listener.set_max_connections(1_000); // as many as there may be threads
/// for pending in listener.incoming() {
///     let pending = pending?;
///     let serve = move || -> std::io::Result<()> {
///         let mut tls = pending.handshake(Pending::DEFAULT_LIMIT)?;
///         tls.write_all(b"hello\n")?;
///         tls.close(Duration::from_secs(1))
///     };
///     if let Err(error) = std::thread::Builder::new().spawn(serve) {
///         eprintln!("no thread for a client, who is let go: {error}");
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct TlsListener {
    inner: Arc<Inner>,
}

struct Inner {
    reloader: Reloader,
    context: Arc<Context>,
    /// `None` after shutdown. Those who wait for a client have it for as long.
    listening: Mutex<Option<Arc<Listening>>>,
    address: Option<SocketAddr>,
    /// Readable as soon as `end` is gone.
    ended: OwnedFd,
    end: Mutex<Option<File>>,
    origin: Origin,
    most: AtomicUsize,
    /// Accepting fails, and that was said.
    troubled: AtomicBool,
}

impl TlsListener {
    /// Listens on a TCP address, as [`TcpListener::bind`] does. Port 0 takes any that is free.
    ///
    /// # Errors
    ///
    /// That the address cannot be bound, with the address in the text.
    pub fn bind(address: impl ToSocketAddrs + fmt::Debug, reloader: &Reloader) -> io::Result<Self> {
        let listener = TcpListener::bind(&address)
            .map_err(|error| io::Error::new(error.kind(), format!("{address:?}: cannot listen: {error}")))?;
        Self::from_tcp(listener, reloader)
    }

    /// Listens on a Unix socket, as [`UnixListener::bind`] does: the path must not exist, and stays when this
    /// ends.
    ///
    /// # Errors
    ///
    /// That the path cannot be bound, with the path in the text.
    pub fn bind_unix(path: impl AsRef<Path>, reloader: &Reloader) -> io::Result<Self> {
        let path = path.as_ref();
        let listener = UnixListener::bind(path).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: cannot listen: {error}", path.display()))
        })?;
        Self::from_unix(listener, reloader)
    }

    /// Takes a socket that listens already: of socket activation, or with options of its own.
    ///
    /// # Errors
    ///
    /// What the system says of the socket.
    pub fn from_tcp(listener: TcpListener, reloader: &Reloader) -> io::Result<Self> {
        // Otherwise a client that is gone between `poll` and `accept` would leave us waiting in `accept`.
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Self::new(Listening::Tcp(listener), Some(address), reloader)
    }

    /// Takes a Unix socket that listens already.
    ///
    /// # Errors
    ///
    /// What the system says of the socket.
    pub fn from_unix(listener: UnixListener, reloader: &Reloader) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Self::new(Listening::Unix(listener), None, reloader)
    }

    fn new(listening: Listening, address: Option<SocketAddr>, reloader: &Reloader) -> io::Result<Self> {
        let (ended, end) = sys::wake_pipe()?;
        let context = Context { store: Arc::clone(reloader.store()), reporter: reloader.reporter().clone() };
        let inner = Inner {
            reloader: reloader.clone(),
            context: Arc::new(context),
            listening: Mutex::new(Some(Arc::new(listening))),
            address,
            ended,
            end: Mutex::new(Some(end)),
            origin: Origin::default(),
            most: AtomicUsize::new(usize::MAX),
            troubled: AtomicBool::new(false),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// At most so many connections at a time, those that still shake hands included: while there are as many,
    /// [`accept`](Self::accept) waits, and clients wait in the queue of the kernel. Default: no limit. At
    /// least 1.
    ///
    /// Files are read with the descriptors that are left: a process that may use them all up (`RLIMIT_NOFILE`)
    /// reloads nothing, and withdraws no trust, while it has. Clients that say nothing hold a place for as long
    /// as their handshake may take.
    pub fn set_max_connections(&self, most: usize) {
        self.inner.most.store(most.max(1), Ordering::SeqCst);
        self.inner.registry().nudge();
    }

    /// The TCP address that is listened on, with its real port; `None` for a Unix socket.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.inner.address
    }

    /// Blocks until a client connects; `None` after [`shutdown`](Self::shutdown).
    ///
    /// What concerns one client, or passes, is no error: while descriptors or memory are used up this waits,
    /// 100 ms at a time, says so once in the log, and goes on.
    ///
    /// # Errors
    ///
    /// That the socket itself is of no use, for good.
    pub fn accept(&self) -> io::Result<Option<Pending>> {
        self.inner.accept()
    }

    /// The connections as they come; ends after [`shutdown`](Self::shutdown).
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }

    /// Stops accepting and closes the socket; asks the connections of this listener to end
    /// ([`TlsStream::is_draining`](crate::TlsStream::is_draining)), waits until they have or `grace` is over,
    /// and cuts the rest. Blocks for as long.
    ///
    /// The reloader goes on, so that those that remain are served as before. May be called again.
    pub fn shutdown(&self, grace: Duration) -> Drained {
        self.inner.stop();
        let registry = self.inner.registry();
        let drained = registry.end(registry.entries(|slot| slot.origin == self.inner.origin), grace);
        info!(
            "identity={} stopped listening: {} connections ended, {} were cut",
            self.inner.reloader.identity(),
            drained.ended,
            drained.cut.len()
        );
        drained
    }
}

impl Inner {
    fn accept(&self) -> io::Result<Option<Pending>> {
        loop {
            match self.try_accept()? {
                Accepted::Pending(pending) => {
                    if self.troubled.swap(false, Ordering::Relaxed) {
                        info!("identity={} accepts connections again", self.reloader.identity());
                    }
                    return Ok(Some(pending));
                }
                Accepted::Nobody(listening) => {
                    self.wait(Some(PollFd::from_borrowed_fd(listening.as_fd(), PollFlags::IN)), None)?;
                }
                Accepted::Full => self.wait_for_room(),
                Accepted::Failing(error) => {
                    if !self.troubled.swap(true, Ordering::Relaxed) {
                        let identity = self.reloader.identity();
                        warn!("identity={identity} cannot accept connections for now: {error}");
                    }
                    // The client stays in the queue and `poll` would return at once.
                    self.wait(None, Some(Instant::now() + PAUSE))?;
                }
                Accepted::Ended => {
                    // `stop` waits for those who had the socket.
                    self.registry().nudge();
                    return Ok(None);
                }
            }
        }
    }

    /// Accepts without waiting. One thread at a time, from the look at the cap until the connection counts; so
    /// whoever takes `listening` away finds every connection that came before.
    fn try_accept(&self) -> io::Result<Accepted> {
        let listening = self.listening.lock();
        let Some(socket) = &*listening else {
            return Ok(Accepted::Ended);
        };
        loop {
            if self.origin.open() >= self.most.load(Ordering::SeqCst) {
                return Ok(Accepted::Full);
            }
            match socket.accept() {
                Ok((socket, peer)) => {
                    // Else it is reset already.
                    if socket.prepare().is_ok() {
                        let entry = self.registry().enter(socket, peer, &self.origin);
                        return Ok(Accepted::Pending(Pending::new(Arc::clone(&self.context), entry)));
                    }
                }
                Err(error) => match Trouble::of(&error) {
                    Trouble::Nobody => return Ok(Accepted::Nobody(Arc::clone(socket))),
                    Trouble::OneClient => {}
                    Trouble::Passing => return Ok(Accepted::Failing(error)),
                    Trouble::Lasting => return Err(error),
                },
            }
        }
    }

    /// Waits for a client or the end.
    fn wait(&self, client: Option<PollFd<'_>>, until: Option<Instant>) -> io::Result<()> {
        let mut fds = vec![PollFd::new(&self.ended, PollFlags::IN)];
        fds.extend(client);
        poll_until(&mut fds, until).map(drop)
    }

    fn wait_for_room(&self) {
        self.registry().wait(Duration::MAX, || {
            self.origin.open() < self.most.load(Ordering::SeqCst) || self.listening.lock().is_none()
        });
    }

    /// No client is let in any more when this returns, and the socket is closed.
    fn stop(&self) {
        let held = self.listening.lock().take().map(|listening| Arc::downgrade(&listening));
        drop(self.end.lock().take());
        self.registry().nudge();
        // Those that wait in it let go at once.
        self.registry().wait(CLOSING, || held.as_ref().is_none_or(|held| held.strong_count() == 0));
    }

    fn registry(&self) -> &Arc<Registry> {
        self.reloader.connections().registry()
    }
}

impl fmt::Debug for TlsListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsListener").field("address", &self.inner.address).finish_non_exhaustive()
    }
}

/// The connections of a [`TlsListener`] as they come.
#[derive(Debug)]
pub struct Incoming<'a> {
    listener: &'a TlsListener,
}

impl Iterator for Incoming<'_> {
    type Item = io::Result<Pending>;

    fn next(&mut self) -> Option<Self::Item> {
        self.listener.accept().transpose()
    }
}

/// What came of a look at the queue.
enum Accepted {
    Pending(Pending),
    /// To be waited for, in this.
    Nobody(Arc<Listening>),
    /// The cap is reached.
    Full,
    /// Not now.
    Failing(io::Error),
    Ended,
}

/// For the accepting threads to let go of the socket.
const CLOSING: Duration = Duration::from_secs(1);

/// While accepting is of no use.
const PAUSE: Duration = Duration::from_millis(100);
