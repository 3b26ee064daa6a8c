//! One accepted connection below TLS, TCP or Unix, that cannot hold a thread beyond a deadline.
//!
//! The descriptor is non-blocking, and `poll(2)` waits for it. A timeout of the socket itself (`SO_RCVTIMEO`)
//! would not do: it begins anew with each byte that a slow peer sends.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, sendmsg};

use crate::sys;

/// A connected stream socket.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Makes it ready for waiting with a deadline, and a TCP socket for short messages.
    pub(crate) fn prepare(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => {
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)
            }
            Self::Unix(stream) => stream.set_nonblocking(true),
        }
    }

    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.shutdown(how),
            Self::Unix(stream) => stream.shutdown(how),
        }
    }

    /// The socket as rustls reads and writes it.
    pub(crate) fn io(&self, wait: Wait) -> SocketIo<'_> {
        SocketIo { socket: self, wait, steps: 0 }
    }

    /// Lets the peer read what was sent last, until it closes or `until`. A socket that is closed with unread
    /// bytes sends a reset, which can overtake an alert or an answer.
    pub(crate) fn linger(&self, until: Instant) {
        let mut scrap = [0; 4_096];
        if self.shutdown(Shutdown::Write).is_ok() {
            let mut io = self.io(Wait::Until(until));
            while matches!(io.read(&mut scrap), Ok(1..)) {}
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

/// For how long reading and writing wait for the peer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    Forever,
    /// Then they fail with [`ErrorKind::TimedOut`].
    Until(Instant),
    /// They fail with [`ErrorKind::WouldBlock`].
    Never,
}

impl Wait {
    /// Waits for at most `limit` from now on.
    pub(crate) fn within(limit: Duration) -> Self {
        // What is beyond the clock is for ever.
        Instant::now().checked_add(limit).map_or(Self::Forever, Self::Until)
    }

    /// When it is over, if it ends by the clock.
    pub(crate) fn deadline(self) -> Option<Instant> {
        match self {
            Self::Until(deadline) => Some(deadline),
            Self::Forever | Self::Never => None,
        }
    }
}

/// A socket with what is left of its time, for one call of a stream or one handshake.
#[derive(Debug)]
pub(crate) struct SocketIo<'a> {
    socket: &'a Socket,
    wait: Wait,
    /// How often it read or wrote.
    steps: u32,
}

impl SocketIo<'_> {
    /// Runs `step` until it did something, waiting for `ready` in between.
    fn run(&mut self, ready: PollFlags, mut step: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
        self.steps += 1;
        // A peer can send records without content faster than they are taken: then nothing ever blocks.
        match self.wait {
            // What is written last, as an alert, has one try.
            Wait::Until(end) if (self.steps > 1 || ready == PollFlags::IN) && end <= Instant::now() => {
                return Err(ErrorKind::TimedOut.into());
            }
            Wait::Never if self.steps > MOST_STEPS => return Err(ErrorKind::WouldBlock.into()),
            _ => {}
        }
        loop {
            match step() {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if matches!(self.wait, Wait::Never) {
                        return Err(error);
                    }
                    let mut fds = [PollFd::new(self.socket, ready)];
                    if !poll_until(&mut fds, self.wait.deadline())? {
                        return Err(ErrorKind::TimedOut.into());
                    }
                }
                done => return done,
            }
        }
    }
}

impl Read for SocketIo<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let socket = self.socket;
        self.run(PollFlags::IN, || match socket {
            Socket::Tcp(stream) => (&*stream).read(buf),
            Socket::Unix(stream) => (&*stream).read(buf),
        })
    }
}

impl Write for SocketIo<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(buf)])
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let socket = self.socket;
        self.run(PollFlags::OUT, || {
            // Not `writev`: in a program that has not switched SIGPIPE off, a client that leaves would end it.
            sendmsg(socket, bufs, &mut SendAncillaryBuffer::default(), sys::SEND).map_err(io::Error::from)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Waits until one of `fds` is ready; false if that did not happen in time. At least one look is taken.
pub(crate) fn poll_until(fds: &mut [PollFd<'_>], until: Option<Instant>) -> io::Result<bool> {
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        // An hour at a time: not every duration fits a `timespec`.
        let nap = left.map(|left| left.min(LONGEST_NAP));
        let timeout = nap.and_then(|nap| Timespec::try_from(nap).ok());
        match poll(fds, timeout.as_ref()) {
            Ok(0) if left == nap => return Ok(false),
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Of one call that does not wait; a record of TLS takes five of 4 KiB.
const MOST_STEPS: u32 = 64;

const LONGEST_NAP: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Socket, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        let socket = Socket::Unix(near);
        socket.prepare().unwrap();
        (socket, far)
    }

    #[test]
    fn a_deadline_holds_for_all_reads_together() {
        let (socket, mut far) = pair();
        let deadline = Instant::now() + Duration::from_millis(60);
        let mut io = socket.io(Wait::Until(deadline));
        let mut bytes = 0;
        let error = loop {
            // Always one byte to read, until the deadline is over: each wait by itself would succeed.
            far.write_all(&[0]).unwrap();
            match io.read(&mut [0]) {
                Ok(length) => bytes += length,
                Err(error) => break error,
            }
        };
        assert!(bytes > 1);
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }

    #[test]
    fn what_is_not_waited_for_would_block() {
        let (socket, _far) = pair();
        assert_eq!(socket.io(Wait::Never).read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    }

    #[test]
    fn writing_to_a_peer_that_does_not_read_ends_at_the_deadline() {
        let (socket, _far) = pair();
        let mut io = socket.io(Wait::within(Duration::from_millis(50)));
        let error = io.write_all(&vec![0; 16 << 20]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }

    #[test]
    fn what_is_longer_than_the_clock_is_for_ever() {
        assert!(matches!(Wait::within(Duration::MAX), Wait::Forever));
    }
}
