//! Everything that runs: the reloader, the server on top of it, the admin port. Start, obey, end.

use std::error::Error;
use std::ffi::c_int;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use prometheus_client::registry::Registry;
use rustls_reload::metrics::Prometheus;
use rustls_reload::{Backend, Drain, Health, Paths, Reloader, TlsListener};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::Options;
use crate::server::Server;
use crate::stop::Stop;
use crate::{accept, admin};

/// What this program reacts to.
pub(crate) const SIGNALS: [c_int; 3] = [SIGINT, SIGTERM, SIGHUP];
/// The label of the one certificate here, in logs and metrics.
const IDENTITY: &str = "https";
/// How long the end waits for connections to finish what they do.
const GRACE: Duration = Duration::from_secs(1);

pub(crate) struct Service {
    pub(crate) reloader: Arc<Reloader>,
    pub(crate) addr: SocketAddr,
    listener: TlsListener,
    stop: Arc<Stop>,
    server: Server,
    admin: Option<JoinHandle<()>>,
}

impl Service {
    pub(crate) fn start(paths: Paths, options: &Options) -> Result<Self, Box<dyn Error>> {
        let backend = if options.poll { Backend::Poll } else { Backend::Auto };
        let mut registry = Registry::default();
        let metrics = Prometheus::register(&mut registry);
        // Loads once; so wrong files end the program here, with a word on what is wrong with them.
        let reloader = Reloader::builder(paths)
            .identity(IDENTITY)
            .metrics(metrics)
            .client_auth(options.client_auth)
            .alpn(["http/1.1"])
            .backend(backend)
            .start()?;
        let reloader = Arc::new(reloader);
        let stop = Arc::new(Stop::new()?);
        let listener = TlsListener::bind(options.listen.as_str(), &reloader)?;
        let addr = listener.local_addr().ok_or_else(|| failed("listens on no TCP address"))?;
        let admin = match &options.admin {
            Some(wanted) => {
                let listener = accept::bind(wanted)?;
                log::info!("admin port on http://{}", listener.local_addr()?);
                Some(admin::start(
                    listener,
                    vec![Reloader::clone(&reloader)],
                    describe,
                    registry,
                    Arc::clone(&stop),
                )?)
            }
            None => None,
        };
        end_withdrawn(&reloader)?;
        let server = Server::start(listener.clone(), options.workers, Arc::clone(&stop))?;
        log::info!("serving on https://{addr}");
        Ok(Self { reloader, addr, listener, stop, server, admin })
    }

    /// Returns when a signal ends the program, or when the handle of `signals` is closed.
    pub(crate) fn obey(&self, signals: &mut Signals) {
        for signal in signals.forever() {
            if signal != SIGHUP {
                log::info!("ending on signal {signal}");
                return;
            }
            match self.reloader.reload_now() {
                Ok(_) => log::info!("checked the files on SIGHUP"),
                Err(error) => log::warn!("checked the files on SIGHUP: {error}"),
            }
        }
    }

    /// Ends the threads and the reloader. Bounded by about two seconds.
    pub(crate) fn end(self) {
        self.stop.set();
        self.listener.shutdown(GRACE);
        self.server.join(Instant::now() + GRACE);
        if self.admin.is_some_and(|admin| admin.join().is_err()) {
            log::error!("the admin thread had panicked");
        }
        self.reloader.shutdown();
    }
}

/// There is one certificate here.
fn describe(healths: &[(&str, Health)]) -> String {
    healths.iter().map(|(_, health)| admin::describe(health)).collect()
}

/// Ends the connections of clients that would not be let in any more, on a thread that ends with the reloader.
fn end_withdrawn(reloader: &Reloader) -> io::Result<()> {
    let (events, connections) = (reloader.subscribe(), reloader.connections().clone());
    let watch = move || {
        // After any event: where no trust was taken away, this does nothing. One drain serves all that wait.
        while events.recv().is_ok() {
            events.try_iter().for_each(drop);
            let drained = connections.drain(Drain::Withdrawn, GRACE);
            let ended = drained.ended + drained.cut.len();
            if ended > 0 {
                log::info!("ended {ended} connections of clients that are not trusted any more");
            }
        }
    };
    Builder::new().name("https-drain".to_owned()).spawn(watch).map(drop)
}

/// An error that is one line.
pub(crate) fn failed(text: impl Into<String>) -> Box<dyn Error> {
    Box::new(io::Error::other(text.into()))
}
