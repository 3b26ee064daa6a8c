//! Where to listen and where to connect to: `host:port`, or `unix:PATH`.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustls_reload::{Reloader, TlsListener};

use crate::command_line::host_and_port;

/// An address as it stands on the command line. A name is looked up each time.
#[derive(Clone, Debug)]
pub(crate) enum Address {
    Tcp(String),
    Unix(PathBuf),
}

impl Address {
    /// Looks at the shape only.
    pub(crate) fn parse(text: &OsStr) -> Option<Self> {
        if let Some(path) = text.as_bytes().strip_prefix(b"unix:") {
            return (!path.is_empty()).then(|| Self::Unix(PathBuf::from(OsStr::from_bytes(path))));
        }
        host_and_port(text).map(Self::Tcp)
    }

    pub(crate) fn listen(&self, reloader: &Reloader) -> io::Result<TlsListener> {
        match self {
            Self::Tcp(address) => TlsListener::bind(address.as_str(), reloader),
            Self::Unix(path) => {
                remove_leftover(path);
                TlsListener::bind_unix(path, reloader)
            }
        }
    }

    /// The file of a Unix socket stays when the socket is closed.
    pub(crate) fn clean_up(&self) {
        if let Self::Unix(path) = self {
            // Gone already, or not ours to remove: the next start looks again.
            fs::remove_file(path).ok();
        }
    }

    /// A connection that does not block, until `deadline`.
    pub(crate) fn connect(&self, deadline: Instant) -> io::Result<Plain> {
        match self {
            Self::Tcp(address) => connect_tcp(address, deadline).map(Plain::Tcp),
            Self::Unix(path) => connect_unix(path, deadline).map(Plain::Unix),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => f.write_str(address),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A connection below TLS, or without it, that does not block.
#[derive(Debug)]
pub(crate) enum Plain {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Plain {
    /// The other side reads its end; reading goes on.
    pub(crate) fn end(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Self::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
    }
}

impl Read for Plain {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buf),
            Self::Unix(stream) => stream.read(buf),
        }
    }
}

impl Write for Plain {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(buf),
            Self::Unix(stream) => stream.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Plain {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

/// Tries every address of the name, each with the time that is left. For the look-up the resolver has limits of its
/// own.
fn connect_tcp(address: &str, deadline: Instant) -> io::Result<TcpStream> {
    let mut outcome = Err(io::Error::new(ErrorKind::NotFound, "the name has no address"));
    for address in address.to_socket_addrs()? {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        outcome = TcpStream::connect_timeout(&address, left);
        if outcome.is_ok() {
            break;
        }
    }
    let stream = outcome?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// Non-blocking from the start: `connect(2)` waits without limit for a place in a queue that is full.
fn connect_unix(path: &Path, deadline: Instant) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    loop {
        match rustix::net::connect(&socket, &address) {
            Ok(()) => return Ok(UnixStream::from(socket)),
            // The kernel tells nobody when there is a place again.
            Err(rustix::io::Errno::AGAIN) if Instant::now() < deadline => thread::park_timeout(RETRY),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Removes the socket of a process that was killed: nobody answers there.
fn remove_leftover(path: &Path) {
    // A file that is no socket refuses connections as well.
    let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    let refuses = |error: io::Error| error.kind() == ErrorKind::ConnectionRefused;
    if is_socket && connect_unix(path, Instant::now()).is_err_and(refuses) {
        // If it cannot be, to bind fails and says so.
        fs::remove_file(path).ok();
    }
}

/// Between two tries to get into a full queue.
const RETRY: Duration = Duration::from_millis(10);
