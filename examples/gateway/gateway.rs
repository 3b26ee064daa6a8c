//! Everything that runs: the reloaders, the listener with a thread a connection, what follows a withdrawal of
//! trust, the admin port. Start, reload, end.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use prometheus_client::registry::Registry;
use rustix::process::{Resource, getrlimit, setrlimit};
use rustls_reload::metrics::Prometheus;
use rustls_reload::{
    Backend, ConnectionInfo, Drain, Drained, Event, Health, Pending, Reloader, ServerRoots, TlsListener,
    TlsStream, Watcher,
};
use signal_hook::iterator::Handle;

use crate::address::Address;
use crate::args::Options;
use crate::relay::{self, Side};
use crate::stop::Stop;
use crate::tally::Tally;
use crate::upstream::{Route, RouteTls};
use crate::{accept, admin, http};

pub(crate) struct Gateway {
    listener: TlsListener,
    address: Address,
    reloaders: Vec<Reloader>,
    grace: Duration,
    stop: Arc<Stop>,
    threads: Vec<JoinHandle<()>>,
}

impl Gateway {
    /// `end` is closed when nothing can be accepted any more.
    pub(crate) fn start(options: Options, end: Handle) -> Result<Self, Box<dyn Error>> {
        let mut registry = Registry::default();
        let metrics = Prometheus::register(&mut registry);
        let watcher = Watcher::start(Backend::Auto)?;
        // A device boots before somebody has brought its certificate: without one, it starts and waits.
        let clients = Reloader::builder(options.paths)
            .identity("clients")
            .client_auth(options.client_auth)
            .metrics(Arc::<Prometheus>::clone(&metrics))
            .watcher(&watcher)
            .allow_absent()
            .start()?;
        let mut reloaders = vec![clients.clone()];
        let tls = match options.tls {
            Some(tls) => {
                let reloader = Reloader::builder(tls.paths)
                    .identity("upstream")
                    .server_roots(ServerRoots::FileOnly)
                    .metrics(metrics)
                    .watcher(&watcher)
                    .allow_absent()
                    .start()?;
                reloaders.push(reloader.clone());
                Some(RouteTls { name: tls.name, reloader })
            }
            None => None,
        };
        for reloader in reloaders.iter().filter(|reloader| reloader.current().is_none()) {
            let identity = reloader.identity();
            log::warn!("identity={identity} connections are refused until there is a certificate");
        }
        let relays =
            Arc::new(Relays::new(Route { address: options.connect, tls }, options.idle, &mut registry));

        let stop = Arc::new(Stop::new()?);
        let mut threads = vec![follow(&clients, options.grace)?];
        if let Some(wanted) = &options.admin {
            let listener = accept::bind(wanted)?;
            log::info!("admin port on http://{}", listener.local_addr()?);
            threads.push(admin::start(listener, reloaders.clone(), describe, registry, Arc::clone(&stop))?);
        }
        let listener = options.listen.listen(&clients)?;
        listener.set_max_connections(affordable(options.max_connections));
        threads.push(relays.start(listener.clone(), Arc::clone(&stop), end)?);
        // With the port that was taken where 0 was asked for.
        let address =
            listener.local_addr().map_or_else(|| options.listen.to_string(), |addr| addr.to_string());
        log::info!("listening on {address}");
        Ok(Self { listener, address: options.listen, reloaders, grace: options.grace, stop, threads })
    }

    /// Checks all files at once.
    pub(crate) fn reload(&self) {
        for reloader in &self.reloaders {
            let identity = reloader.identity();
            match reloader.reload_now() {
                Ok(_) => log::info!("identity={identity} checked the files on SIGHUP"),
                Err(error) => log::warn!("identity={identity} checked the files on SIGHUP: {error}"),
            }
        }
    }

    /// Accepts nothing more, gives connections their grace, ends the threads.
    pub(crate) fn end(self) {
        // While nobody else can listen there: later, the file could be that of a successor.
        self.address.clean_up();
        let drained = self.listener.shutdown(self.grace);
        if !drained.cut.is_empty() {
            log::info!("cut at the end: {}", peers(&drained.cut));
        }
        self.stop.set();
        for reloader in &self.reloaders {
            reloader.shutdown();
        }
        for thread in self.threads {
            if thread.join().is_err() {
                log::error!("a thread had panicked");
            }
        }
    }
}

/// One object a certificate, under its name.
fn describe(healths: &[(&str, Health)]) -> String {
    let part = |(identity, health): &(&str, Health)| {
        format!("{}:{}", http::json_string(identity), admin::describe(health))
    };
    format!("{{{}}}", healths.iter().map(part).collect::<Vec<_>>().join(","))
}

/// As many of the wanted connections as there are descriptors for, two each. What reads files must never be
/// without one: else trust that is withdrawn would not be seen.
fn affordable(wanted: usize) -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // It stays as it was where that is forbidden.
    setrlimit(Resource::Nofile, limit).ok();
    let limit = getrlimit(Resource::Nofile).current.and_then(|limit| usize::try_from(limit).ok());
    let most = (limit.unwrap_or(usize::MAX).saturating_sub(RESERVED) / 2).max(1);
    if most < wanted {
        log::warn!("descriptors (ulimit -n) suffice for {most} connections at a time, not for {wanted}");
    }
    wanted.min(most)
}

/// Starts the thread that ends connections whose trust was withdrawn: those of a CA that is gone, or of a
/// certificate that was revoked. All others stay.
fn follow(reloader: &Reloader, grace: Duration) -> io::Result<JoinHandle<()>> {
    let (events, reloader) = (reloader.subscribe(), reloader.clone());
    Builder::new().name("trust".to_owned()).stack_size(STACK).spawn(move || {
        // Ends with the reloader.
        for event in events {
            if let Event::Swapped(swap) = event
                && swap.difference().is_some_and(|difference| difference.withdraws_trust())
            {
                withdraw(&reloader, grace);
            }
        }
    })
}

/// On a thread of its own: it waits for `grace`, and the next withdrawal must not wait for it.
fn withdraw(reloader: &Reloader, grace: Duration) {
    let own = reloader.clone();
    let drain = move || log_withdrawal(&own.connections().drain(Drain::Withdrawn, grace));
    if let Err(error) = Builder::new().name("drain".to_owned()).stack_size(STACK).spawn(drain) {
        log::warn!("no thread to wait on, so connections without trust are cut at once: {error}");
        log_withdrawal(&reloader.connections().drain(Drain::Withdrawn, Duration::ZERO));
    }
}

fn log_withdrawal(drained: &Drained) {
    if drained.ended > 0 || !drained.cut.is_empty() {
        let (ended, cut) = (drained.ended, drained.cut.len());
        log::info!("trust was withdrawn: {ended} connections ended, {cut} were cut: {}", peers(&drained.cut));
    }
}

/// The first few: a line has to end somewhere.
fn peers(connections: &[ConnectionInfo]) -> String {
    let name = |connection: &ConnectionInfo| match connection.peer {
        Some(peer) => peer.to_string(),
        None => "a local client".to_owned(),
    };
    let mut names: Vec<_> = connections.iter().take(NAMED).map(name).collect();
    if let Some(more) = connections.len().checked_sub(NAMED).filter(|more| *more > 0) {
        names.push(format!("and {more} more"));
    }
    if names.is_empty() { "nobody".to_owned() } else { names.join(", ") }
}

/// What the threads of the connections share.
struct Relays {
    route: Route,
    idle: Option<Duration>,
    upstream: Tally,
    threads: Tally,
}

impl Relays {
    fn new(route: Route, idle: Option<Duration>, registry: &mut Registry) -> Self {
        Self {
            route,
            idle,
            upstream: Tally::register(
                registry,
                "cannot connect to the upstream",
                "gateway_upstream_failures",
                "Connections that ended because the upstream could not be reached.",
            ),
            threads: Tally::register(
                registry,
                "a connection was dropped, there is no thread for it",
                "gateway_thread_failures",
                "Connections that were dropped because no thread could be started.",
            ),
        }
    }

    /// Starts the thread that accepts.
    fn start(
        self: &Arc<Self>,
        listener: TlsListener,
        stop: Arc<Stop>,
        end: Handle,
    ) -> io::Result<JoinHandle<()>> {
        let relays = Arc::clone(self);
        Builder::new().name("accept".to_owned()).spawn(move || {
            for pending in listener.incoming() {
                match pending {
                    Ok(pending) => relays.take(pending, &stop),
                    Err(error) => {
                        log::error!("nothing can be accepted any more: {error}");
                        break;
                    }
                }
            }
            end.close();
        })
    }

    /// Gives a connection its thread.
    fn take(self: &Arc<Self>, pending: Pending, stop: &Stop) {
        let relays = Arc::clone(self);
        let spawned = Builder::new().name("relay".to_owned()).stack_size(STACK).spawn(move || {
            // Clients come and go as they like: not a line at info.
            if let Err(error) = relays.serve(pending) {
                log::debug!("connection ended: {error}");
            }
        });
        match spawned {
            Ok(_) => self.threads.succeeded(),
            // EAGAIN: the limit of threads (`RLIMIT_NPROC`, the cgroup's `pids.max`) or memory. The client was
            // dropped with the closure; the next one may have more luck in a moment.
            Err(error) => {
                self.threads.failed(&error);
                // An end meanwhile is seen by whoever accepts.
                stop.wait(None, Some(PAUSE)).ok();
            }
        }
    }

    /// The upstream learns of a connection only when its client is let in.
    fn serve(&self, pending: Pending) -> io::Result<()> {
        let mut client = pending.handshake(Pending::DEFAULT_LIMIT)?;
        let mut upstream = match self.route.connect() {
            Ok(upstream) => upstream,
            Err(error) => {
                self.upstream.failed(&error);
                return Err(error);
            }
        };
        self.upstream.succeeded();
        client.set_nonblocking();
        relay::run(&mut client, &mut upstream, self.idle)?;
        drop(upstream);
        client.close(LINGER)
    }
}

impl Side for TlsStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        io::Read::read(self, buf)
    }

    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        io::Write::write(self, buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::Write::flush(self)
    }

    fn wants_write(&self) -> bool {
        Self::wants_write(self)
    }

    fn end(&mut self) -> io::Result<()> {
        self.send_close_notify();
        Ok(())
    }

    fn may_be_cut(&self) -> bool {
        self.is_draining()
    }
}

/// Of the thread of a connection. Measured with client certificates (P-256 and RSA of 4096 bits) and a name to look up:
/// 36 KiB are touched in a release build, 64 KiB in a debug build.
const STACK: usize = 128 * 1024;

/// After no thread could be started.
const PAUSE: Duration = Duration::from_millis(100);

/// For a client to close its side after both have said that they are done.
const LINGER: Duration = Duration::from_secs(1);

/// Descriptors of everything but connections.
const RESERVED: usize = 64;

/// Peers in a log line.
const NAMED: usize = 8;
