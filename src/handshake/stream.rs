//! A connection after its handshake.

use std::fmt;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::{ServerConnection, Stream};

use super::Context;
use crate::bundle::Leaf;
use crate::connections::Entry;
use crate::socket::{SocketIo, Wait};

/// A TLS connection of a server. Made by [`Pending::handshake`](super::Pending::handshake).
///
/// Reading and writing block, without a limit until [`set_deadline`](Self::set_deadline) gives one. A read
/// returns 0 at the end that the client announced, and fails with [`UnexpectedEof`](io::ErrorKind::UnexpectedEof)
/// at one that it did not: what came may be cut short.
///
/// It lives through rotations: its keys were agreed in the handshake. Dropping it closes the connection without
/// a word; [`close`](Self::close) says goodbye.
///
/// ```no_run
/// use std::io::{Read as _, Write as _};
/// use std::time::{Duration, Instant};
///
/// # fn example(mut tls: rustls_reload::TlsStream) -> std::io::Result<()> {
/// let mut buffer = [0; 1024];
/// while !tls.is_draining() {
///     tls.set_deadline(Some(Instant::now() + Duration::from_secs(60))); // for the whole exchange
///     let length = tls.read(&mut buffer)?;
///     if length == 0 {
///         break;
///     }
///     tls.write_all(&buffer[..length])?;
/// }
/// tls.close(Duration::from_secs(1))
/// # }
/// ```
pub struct TlsStream {
    tls: ServerConnection,
    wait: Wait,
    leaf: Arc<Leaf>,
    context: Arc<Context>,
    entry: Arc<Entry>,
}

impl TlsStream {
    pub(super) fn new(
        tls: ServerConnection,
        context: Arc<Context>,
        entry: Arc<Entry>,
        leaf: Arc<Leaf>,
    ) -> Self {
        Self { tls, wait: Wait::Forever, leaf, context, entry }
    }

    /// The number of the generation that it runs on.
    pub fn generation(&self) -> u64 {
        self.entry.session().map_or(0, |session| session.generation)
    }

    /// The certificate that the client was shown.
    pub fn leaf(&self) -> &Arc<Leaf> {
        &self.leaf
    }

    /// Where the client is; `None` for a Unix socket.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.entry.peer()
    }

    /// What rustls knows of it: the client's certificates, the protocol that was agreed on (ALPN), the server
    /// name that was asked for, version and cipher suite.
    pub fn tls(&self) -> &ServerConnection {
        &self.tls
    }

    /// Whether a newer generation is served by now. Nothing is wrong with the connection; a server may take it
    /// for a reason to let the client come again (`Connection: close`, GOAWAY).
    pub fn is_stale(&self) -> bool {
        self.context.store.number() != self.generation()
    }

    /// Whether it was asked to end, by [`Connections::drain`](crate::Connections::drain) or by
    /// [`TlsListener::shutdown`](crate::TlsListener::shutdown). It will be cut if it does not: then reading and
    /// writing fail with [`ConnectionAborted`](io::ErrorKind::ConnectionAborted).
    pub fn is_draining(&self) -> bool {
        self.entry.is_draining()
    }

    /// Until when there is time for reading and writing; then they fail with
    /// [`TimedOut`](io::ErrorKind::TimedOut), also where more could be read at once. A timeout of a socket
    /// begins anew with each byte of a slow peer; this does not. Default: none.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.wait = deadline.map_or(Wait::Forever, Wait::Until);
    }

    /// Reading and writing do not wait: they fail with [`WouldBlock`](io::ErrorKind::WouldBlock). For loops
    /// around `poll(2)`.
    ///
    /// Write first, then read until it would block, then wait for the descriptor: writing may take bytes in, and
    /// what was taken in is not announced by the kernel any more. Ends with the next [`set_deadline`](Self::set_deadline).
    pub fn set_nonblocking(&mut self) {
        self.wait = Wait::Never;
    }

    /// Whether encrypted bytes wait to be sent; [`flush`](Write::flush) sends them.
    pub fn wants_write(&self) -> bool {
        self.tls.wants_write()
    }

    /// Announces the end of what is written (`close_notify`); reading goes on. [`flush`](Write::flush) sends it.
    pub fn send_close_notify(&mut self) {
        self.tls.send_close_notify();
    }

    /// Announces the end, sends what is left, and waits for the client to close, for at most `limit` in all: a
    /// socket that is closed with unread bytes sends a reset, which can overtake the last answer.
    ///
    /// # Errors
    ///
    /// If not everything could be sent.
    pub fn close(mut self, limit: Duration) -> io::Result<()> {
        self.wait = Wait::within(limit);
        self.tls.send_close_notify();
        self.flush()?;
        let until = self.wait.deadline().unwrap_or_else(|| Instant::now() + super::LINGER);
        self.entry.socket().linger(until);
        Ok(())
    }

    /// What a drain cut is over, whatever the kernel or rustls still hold of it.
    fn check(&self) -> io::Result<()> {
        if self.entry.is_cut() { Err(ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }

    /// What `write` did of something. rustls says 0 if its buffer was full and is not empty yet.
    fn written(&mut self, mut write: impl FnMut(&mut Self) -> io::Result<usize>) -> io::Result<usize> {
        loop {
            self.check()?;
            match (write(self)?, self.wait) {
                (0, Wait::Never) => return Err(ErrorKind::WouldBlock.into()),
                (0, _) => {}
                (length, _) => return Ok(length),
            }
        }
    }

    fn run<T>(&mut self, step: impl FnOnce(&mut Stream<'_, ServerConnection, SocketIo<'_>>) -> T) -> T {
        let mut io = self.entry.socket().io(self.wait);
        step(&mut Stream::new(&mut self.tls, &mut io))
    }
}

impl Read for TlsStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.check()?;
        self.run(|stream| stream.read(buf))
    }
}

impl Write for TlsStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        self.written(|tls| tls.run(|stream| stream.write(buf)))
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        if bufs.iter().all(|buf| buf.is_empty()) {
            return Ok(0);
        }
        self.written(|tls| tls.run(|stream| stream.write_vectored(bufs)))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.check()?;
        self.run(|stream| stream.flush())
    }
}

/// For `poll(2)` alone: what is read or written beside the stream breaks the connection.
impl AsFd for TlsStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.entry.socket().as_fd()
    }
}

impl fmt::Debug for TlsStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsStream")
            .field("peer", &self.peer_addr())
            .field("generation", &self.generation())
            .finish_non_exhaustive()
    }
}
