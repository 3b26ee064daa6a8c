//! The queue of clients that the kernel keeps, and what it says where nobody can be taken out.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;

use rustix::io::Errno;

use crate::socket::Socket;

/// A socket that listens.
#[derive(Debug)]
pub(super) enum Listening {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listening {
    /// Never waits.
    pub(super) fn accept(&self) -> io::Result<(Socket, Option<SocketAddr>)> {
        match self {
            Self::Tcp(listener) => listener.accept().map(|(stream, peer)| (Socket::Tcp(stream), Some(peer))),
            Self::Unix(listener) => listener.accept().map(|(stream, _)| (Socket::Unix(stream), None)),
        }
    }
}

impl AsFd for Listening {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }
}

/// What an error of `accept(2)` is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// No client waits.
    Nobody,
    /// A client that is gone, or whose network is: it is out of the queue.
    OneClient,
    /// The system has nothing left for us, or forbids it, for now.
    Passing,
    /// The socket.
    Lasting,
}

impl Trouble {
    pub(super) fn of(error: &io::Error) -> Self {
        if error.kind() == ErrorKind::WouldBlock {
            return Self::Nobody;
        }
        match Errno::from_io_error(error) {
            // accept(2): errors that wait on the new socket come out here, and are to be treated like EAGAIN.
            Some(
                Errno::INTR
                | Errno::CONNABORTED
                | Errno::PROTO
                | Errno::NOPROTOOPT
                | Errno::NETDOWN
                | Errno::NETUNREACH
                | Errno::HOSTDOWN
                | Errno::HOSTUNREACH
                | Errno::TIMEDOUT
                | Errno::CONNRESET,
            ) => Self::OneClient,
            Some(Errno::BADF | Errno::INVAL | Errno::NOTSOCK | Errno::FAULT | Errno::OPNOTSUPP) => {
                Self::Lasting
            }
            _ => Self::Passing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_accept_are_told_apart() {
        let table = [
            (Errno::AGAIN, Trouble::Nobody),
            (Errno::CONNABORTED, Trouble::OneClient),
            (Errno::HOSTUNREACH, Trouble::OneClient),
            (Errno::MFILE, Trouble::Passing),
            (Errno::NFILE, Trouble::Passing),
            (Errno::NOBUFS, Trouble::Passing),
            (Errno::NOMEM, Trouble::Passing),
            (Errno::PERM, Trouble::Passing),
            (Errno::BADF, Trouble::Lasting),
            (Errno::INVAL, Trouble::Lasting),
        ];
        for (errno, expected) in table {
            assert_eq!(Trouble::of(&errno.into()), expected, "{errno}");
        }
    }
}
