//! A TCP connection that cannot hold a thread for ever.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// A socket with one deadline for everything until the next [`within`](Self::within).
///
/// A timeout of the socket alone would not do: it begins anew with each byte that a slow peer sends.
pub(crate) struct Socket {
    stream: TcpStream,
    deadline: Instant,
}

impl Socket {
    pub(crate) fn new(stream: TcpStream, within: Duration) -> io::Result<Self> {
        // BSD hands the listener's mode down, Linux does not.
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, deadline: Instant::now() + within })
    }

    /// Sets a new deadline.
    pub(crate) fn within(&mut self, limit: Duration) {
        self.deadline = Instant::now() + limit;
    }

    /// Closes after the peer has had a chance to read what was sent last. A socket that is closed with
    /// unread bytes sends a reset, which can overtake an answer or an alert.
    pub(crate) fn linger(mut self) {
        const LIMIT: Duration = Duration::from_millis(500);
        const ROUNDS: usize = 64;
        self.within(LIMIT);
        let mut scrap = [0; 4_096];
        if self.stream.shutdown(Shutdown::Write).is_ok() {
            for _ in 0..ROUNDS {
                if !matches!(self.read(&mut scrap), Ok(1..)) {
                    break;
                }
            }
        }
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(Some(left))
    }
}

impl Read for Socket {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buf)
    }
}

impl Write for Socket {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
