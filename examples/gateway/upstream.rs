//! The side that connections are relayed to: plain, or TLS with an identity that is reloaded too.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use rustls_reload::Reloader;

use crate::address::{Address, Plain};
use crate::relay::{self, Side};

/// How to get there.
pub(crate) struct Route {
    pub(crate) address: Address,
    pub(crate) tls: Option<RouteTls>,
}

/// What TLS needs to get there.
pub(crate) struct RouteTls {
    pub(crate) name: ServerName<'static>,
    pub(crate) reloader: Reloader,
}

impl Route {
    /// Connects and shakes hands, in [`LIMIT`] all together. The error names the address first.
    pub(crate) fn connect(&self) -> io::Result<Upstream> {
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("{}: {}", self.address, explained(&error)))
        };
        self.connect_until(Instant::now() + LIMIT).map_err(named)
    }

    fn connect_until(&self, deadline: Instant) -> io::Result<Upstream> {
        let Some(tls) = &self.tls else {
            return self.address.connect(deadline).map(Upstream::Plain);
        };
        // The newest certificate and trust, for each connection.
        let config = tls.reloader.client_config();
        let config = config.ok_or_else(|| io::Error::other("there is no certificate for it yet"))?;
        let plain = self.address.connect(deadline)?;
        shake_hands(plain, config, tls.name.clone(), deadline).map(Box::new).map(Upstream::Tls)
    }
}

/// One connection to there. Does not block.
pub(crate) enum Upstream {
    Plain(Plain),
    Tls(Box<StreamOwned<ClientConnection, Plain>>),
}

impl Side for Upstream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(plain) => plain.read(buf),
            Self::Tls(tls) => tls.read(buf),
        }
    }

    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(plain) => plain.write(buf),
            // rustls says 0 while its buffer is full and has not become empty.
            Self::Tls(tls) => match tls.write(buf)? {
                0 if !buf.is_empty() => Err(ErrorKind::WouldBlock.into()),
                length => Ok(length),
            },
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Tls(tls) => tls.flush(),
        }
    }

    fn wants_write(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => tls.conn.wants_write(),
        }
    }

    fn end(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(plain) => plain.end(),
            Self::Tls(tls) => {
                tls.conn.send_close_notify();
                Ok(())
            }
        }
    }
}

impl AsFd for Upstream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Plain(plain) => plain.as_fd(),
            Self::Tls(tls) => tls.sock.as_fd(),
        }
    }
}

fn shake_hands(
    mut plain: Plain,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    deadline: Instant,
) -> io::Result<StreamOwned<ClientConnection, Plain>> {
    let mut tls = ClientConnection::new(config, name).map_err(io::Error::other)?;
    while tls.is_handshaking() {
        match tls.complete_io(&mut plain) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let wanted = if tls.wants_write() { PollFlags::OUT } else { PollFlags::IN };
                if !relay::wait_for(&plain, wanted, deadline)? {
                    return Err(ErrorKind::TimedOut.into());
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(StreamOwned::new(tls, plain))
}

/// The words of the standard library for an end in the middle are about files.
fn explained(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::TimedOut => format!("no answer within {} s", LIMIT.as_secs()),
        ErrorKind::UnexpectedEof => "it closed the connection in the handshake".to_owned(),
        _ => error.to_string(),
    }
}

/// For connecting and the handshake. The client waits meanwhile, most of them not much longer.
const LIMIT: Duration = Duration::from_secs(5);
