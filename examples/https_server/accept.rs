//! Accepting connections until the end, also when descriptors run out.

use std::io::{self, ErrorKind};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crate::stop::{Stop, Woken};

/// How long to wait when the system has no descriptor left for us.
const PAUSE: Duration = Duration::from_millis(100);

/// Binds, and says what could not be bound.
pub(crate) fn bind(addr: &str) -> io::Result<TcpListener> {
    TcpListener::bind(addr)
        .map_err(|error| io::Error::new(error.kind(), format!("{addr}: cannot listen: {error}")))
}

/// Starts the thread `name`, which hands every connection to `take`.
pub(crate) fn start(
    name: &str,
    listener: TcpListener,
    stop: Arc<Stop>,
    mut take: impl FnMut(TcpStream) + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    // Otherwise a client that is gone between `poll` and `accept` would leave us waiting in `accept`.
    listener.set_nonblocking(true)?;
    let label = name.to_owned();
    Builder::new().name(name.to_owned()).spawn(move || {
        let mut failing = false;
        loop {
            match stop.wait(Some(listener.as_fd()), None) {
                Ok(Woken::Stopped) => return,
                Ok(_) => {}
                Err(error) => {
                    log::error!("{label}: {error}");
                    return;
                }
            }
            match listener.accept() {
                Ok((stream, _)) => {
                    failing = false;
                    take(stream);
                }
                Err(error) if is_about_one_client(&error) => {}
                // EMFILE, ENFILE, ENOMEM: the connection stays in the queue and `poll` returns at once, so
                // trying again without a pause would spin. One line, not one a try.
                Err(error) => {
                    if !failing {
                        log::warn!("{label}: cannot accept connections for now: {error}");
                    }
                    failing = true;
                    if matches!(stop.wait(None, Some(PAUSE)), Ok(Woken::Stopped) | Err(_)) {
                        return;
                    }
                }
            }
        }
    })
}

fn is_about_one_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock
            | ErrorKind::Interrupted
            | ErrorKind::ConnectionAborted
            | ErrorKind::ConnectionReset
    )
}
