//! HTTPS on a pool of threads: one connection a thread at a time, one TLS configuration a connection.

use std::convert::Infallible;
use std::io::{self, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Builder;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, SendTimeoutError, bounded};
use rustls::server::{Accepted, Acceptor};
use rustls::{ServerConnection, StreamOwned};
use rustls_reload::metrics::HandshakeFailure;
use rustls_reload::{Generation, Reloader};

use crate::http::{self, Method, Received, Request, Response, Status};
use crate::socket::Socket;
use crate::stop::{Stop, Woken};
use crate::{accept, clock};

/// For the whole handshake: a client that trickles bytes must not keep a thread.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// From the first byte of a request to its last.
const REQUEST: Duration = Duration::from_secs(10);
/// For an answer to be taken by the client.
const ANSWER: Duration = Duration::from_secs(10);
/// Between two requests.
const IDLE: Duration = Duration::from_secs(60);
/// How often a thread with an idle connection looks whether it is wanted for another one.
const GLANCE: Duration = Duration::from_millis(250);
/// Of a worker. Handshakes need well below a quarter of this.
const STACK: usize = 512 * 1_024;

type Tls = StreamOwned<ServerConnection, Socket>;

/// The running threads.
pub(crate) struct Server {
    /// Nothing is ever sent: it is disconnected when the last thread has ended.
    running: Receiver<Infallible>,
}

impl Server {
    pub(crate) fn start(
        listener: TcpListener,
        reloader: Arc<Reloader>,
        workers: usize,
        stop: Arc<Stop>,
    ) -> io::Result<Self> {
        let (sender, queue) = bounded::<TcpStream>(workers);
        let (alive, running) = bounded::<Infallible>(0);
        let pool = Arc::new(Pool { queue, waiting: AtomicUsize::new(0), stop: Arc::clone(&stop) });
        for n in 1..=workers {
            let (pool, reloader, alive) = (Arc::clone(&pool), Arc::clone(&reloader), alive.clone());
            let worker = Builder::new().name(format!("https-{n}")).stack_size(STACK);
            worker.spawn(move || {
                pool.work(&reloader);
                drop(alive);
            })?;
        }
        let ended = Arc::clone(&stop);
        accept::start("https-accept", listener, stop, move |stream| {
            let _until_the_end = &alive;
            // While every worker is busy and the queue is full, connections wait in the kernel's.
            let mut next = stream;
            while let Err(SendTimeoutError::Timeout(stream)) = sender.send_timeout(next, GLANCE) {
                if ended.is_set() {
                    return;
                }
                next = stream;
            }
        })?;
        Ok(Self { running })
    }

    /// Waits for the threads until `deadline`. One that serves a slow client is left to the end of the process.
    pub(crate) fn join(self, deadline: Instant) {
        if matches!(self.running.recv_deadline(deadline), Err(RecvTimeoutError::Timeout)) {
            log::info!("some connections were still busy at the end");
        }
    }
}

/// What the workers share.
struct Pool {
    queue: Receiver<TcpStream>,
    /// Workers without a connection.
    waiting: AtomicUsize,
    stop: Arc<Stop>,
}

impl Pool {
    /// Serves one connection after the other. Ends when the accepting thread is gone.
    fn work(&self, reloader: &Reloader) {
        loop {
            // Relaxed: a hint, read by `is_short_of_workers` alone.
            self.waiting.fetch_add(1, Ordering::Relaxed);
            let next = self.queue.recv();
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            let Ok(stream) = next else {
                return;
            };
            // Clients come and go as they like: not a line at info.
            if let Err(error) = self.serve(stream, reloader) {
                log::debug!("connection ended: {error}");
            }
        }
    }

    fn serve(&self, stream: TcpStream, reloader: &Reloader) -> io::Result<()> {
        let mut socket = Socket::new(stream, HANDSHAKE)?;
        let (generation, connection) = match shake_hands(&mut socket, reloader) {
            Ok(shaken) => shaken,
            Err(error) => {
                reloader.reporter().handshake_failure(HandshakeFailure::of(&error));
                // An alert was sent; it is to be read.
                socket.linger();
                return Err(error);
            }
        };
        if let Some(kind) = connection.handshake_kind() {
            reloader.reporter().handshake(kind);
        }
        let about = describe(&generation, &connection);
        let mut tls = StreamOwned::new(connection, socket);
        let end = self.answer_all(&mut tls, &about)?;
        tls.sock.within(ANSWER);
        tls.conn.send_close_notify();
        tls.flush()?;
        if end == End::Answered {
            tls.sock.linger();
        }
        Ok(())
    }

    /// Answers requests until one side has enough.
    fn answer_all(&self, tls: &mut Tls, about: &str) -> io::Result<End> {
        let mut buffer = Vec::new();
        loop {
            if buffer.is_empty() && !self.comes_more(tls)? {
                return Ok(End::Idle);
            }
            tls.sock.within(REQUEST);
            let (response, method, keep_alive) = match http::read(tls, &mut buffer)? {
                Received::Request(request) => {
                    let keep_alive = request.keep_alive && !self.stop.is_set() && !self.is_short_of_workers();
                    (route(&request, about), request.method, keep_alive)
                }
                Received::Refused(status) => (Response::plain(status), Method::Other, false),
                Received::End => return Ok(End::Peer),
            };
            tls.sock.within(ANSWER);
            tls.write_all(&response.to_bytes(method, keep_alive))?;
            tls.flush()?;
            if !keep_alive {
                return Ok(End::Answered);
            }
        }
    }

    /// Waits for the next request; false if the connection is to be closed instead.
    fn comes_more(&self, tls: &mut Tls) -> io::Result<bool> {
        let limit = Instant::now() + IDLE;
        loop {
            // rustls may hold what the socket will not announce again.
            let state = tls.conn.process_new_packets().map_err(io::Error::other)?;
            if state.plaintext_bytes_to_read() > 0 || state.peer_has_closed() {
                return Ok(true);
            }
            match self.stop.wait(Some(tls.sock.as_fd()), Some(GLANCE))? {
                Woken::Ready => return Ok(true),
                Woken::Stopped => return Ok(false),
                Woken::TimedOut if self.is_short_of_workers() || Instant::now() >= limit => return Ok(false),
                Woken::TimedOut => {}
            }
        }
    }

    /// Whether somebody waits and nobody is free: then idle connections give way.
    fn is_short_of_workers(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) == 0 && !self.queue.is_empty()
    }
}

/// How a connection came to its end.
#[derive(PartialEq, Eq)]
enum End {
    /// The client has no more requests.
    Peer,
    /// Nothing came, for too long or while others wait.
    Idle,
    /// With the last answer, which the client may still be reading.
    Answered,
}

fn route(request: &Request, about: &str) -> Response {
    match (request.method, request.path.as_str()) {
        (Method::Other, _) => Response::plain(Status::MethodNotAllowed),
        (_, "/") => Response::json(Status::Ok, about.to_owned()),
        _ => Response::plain(Status::NotFound),
    }
}

/// The whole handshake. Certificate, key and trust of a connection come from one generation: the one that is
/// current when the ClientHello has come, so that trust that was withdrawn before is withdrawn for it.
fn shake_hands(socket: &mut Socket, reloader: &Reloader) -> io::Result<(Arc<Generation>, ServerConnection)> {
    let hello = client_hello(socket)?;
    let generation = reloader.current().ok_or_else(|| io::Error::other("there is no certificate yet"))?;
    let mut connection =
        hello.into_connection(generation.server_config()).map_err(|(error, mut alert)| {
            // The peer may be gone: the handshake failed already.
            alert.write_all(socket).ok();
            io::Error::new(io::ErrorKind::InvalidData, error)
        })?;
    while connection.is_handshaking() {
        connection.complete_io(socket)?;
    }
    Ok((generation, connection))
}

/// Reads until the ClientHello is there.
fn client_hello(socket: &mut Socket) -> io::Result<Accepted> {
    let mut acceptor = Acceptor::default();
    loop {
        if acceptor.read_tls(socket)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match acceptor.accept() {
            Ok(Some(hello)) => return Ok(hello),
            Ok(None) => {}
            Err((error, mut alert)) => {
                alert.write_all(socket).ok();
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
        }
    }
}

/// What `GET /` answers: the generation that *this* connection uses.
fn describe(generation: &Generation, connection: &ServerConnection) -> String {
    let leaf = generation.bundle().leaf();
    // rustls writes `TLSv1_3`.
    let protocol = connection.protocol_version().and_then(|version| version.as_str());
    let protocol = protocol.unwrap_or_default().replace('_', ".");
    format!(
        "{{\"generation\":{},\"serial\":{},\"fingerprint_sha256\":{},\"not_after\":{},\"protocol\":{}}}\n",
        generation.number(),
        http::json_string(leaf.serial()),
        http::json_string(&leaf.fingerprint().to_string()),
        http::json_string(&clock::rfc3339(leaf.validity().not_after)),
        http::json_string(&protocol),
    )
}
