//! HTTPS on a pool of threads: one connection a thread at a time, one TLS configuration a connection.

use std::convert::Infallible;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Builder;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use rustls_reload::{Pending, TlsListener, TlsStream};

use crate::clock;
use crate::http::{self, Method, Received, Request, Response, Status};
use crate::stop::{Stop, Woken};

/// From the first byte of a request to its last.
const REQUEST: Duration = Duration::from_secs(10);
/// For an answer to be taken by the client.
const ANSWER: Duration = Duration::from_secs(10);
/// For the client to close after the last answer.
const GOODBYE: Duration = Duration::from_millis(500);
/// Between two requests.
const IDLE: Duration = Duration::from_secs(60);
/// How often a thread with an idle connection looks whether it is wanted for another one.
const GLANCE: Duration = Duration::from_millis(250);
/// Of a worker. Handshakes need well below a quarter of this.
const STACK: usize = 512 * 1_024;

/// The running threads.
pub(crate) struct Server {
    /// Nothing is ever sent: it is disconnected when the last thread has ended.
    running: Receiver<Infallible>,
}

impl Server {
    pub(crate) fn start(listener: TlsListener, workers: usize, stop: Arc<Stop>) -> io::Result<Self> {
        // While every worker is busy and the queue is full, connections wait in the kernel's.
        let (sender, queue) = bounded::<Pending>(workers);
        let (alive, running) = bounded::<Infallible>(0);
        let pool = Arc::new(Pool { queue, waiting: AtomicUsize::new(0), stop });
        for n in 1..=workers {
            let (pool, alive) = (Arc::clone(&pool), alive.clone());
            let worker = Builder::new().name(format!("https-{n}")).stack_size(STACK);
            worker.spawn(move || {
                pool.work();
                drop(alive);
            })?;
        }
        Builder::new().name("https-accept".to_owned()).spawn(move || {
            let _until_the_end = alive;
            for pending in listener.incoming() {
                let taken = pending
                    .map_err(|error| error.to_string())
                    .and_then(|pending| sender.send(pending).map_err(|_| "no worker is left".to_owned()));
                if let Err(error) = taken {
                    log::error!("accepts no more connections: {error}");
                    return;
                }
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
    queue: Receiver<Pending>,
    /// Workers without a connection.
    waiting: AtomicUsize,
    stop: Arc<Stop>,
}

impl Pool {
    /// Serves one connection after the other. Ends when the accepting thread is gone.
    fn work(&self) {
        loop {
            // Relaxed: a hint, read by `is_short_of_workers` alone.
            self.waiting.fetch_add(1, Ordering::Relaxed);
            let next = self.queue.recv();
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            let Ok(pending) = next else {
                return;
            };
            // Clients come and go as they like: not a line at info.
            if let Err(error) = self.serve(pending) {
                log::debug!("connection ended: {error}");
            }
        }
    }

    fn serve(&self, pending: Pending) -> io::Result<()> {
        let mut tls = pending.handshake(Pending::DEFAULT_LIMIT)?;
        let about = describe(&tls);
        let end = self.answer_all(&mut tls, &about)?;
        tls.close(if end == End::Answered { GOODBYE } else { Duration::ZERO })
    }

    /// Answers requests until one side has enough.
    fn answer_all(&self, tls: &mut TlsStream, about: &str) -> io::Result<End> {
        let mut buffer = Vec::new();
        loop {
            if let Some(end) = self.wait_for_more(tls, &mut buffer)? {
                return Ok(end);
            }
            tls.set_deadline(Some(Instant::now() + REQUEST));
            let (response, method, keep_alive) = match http::read(tls, &mut buffer)? {
                Received::Request(request) => {
                    let keep_alive = request.keep_alive && !self.is_over(tls) && !self.is_short_of_workers();
                    (route(&request, about), request.method, keep_alive)
                }
                Received::Refused(status) => (Response::plain(status), Method::Other, false),
                Received::End => return Ok(End::Peer),
            };
            tls.set_deadline(Some(Instant::now() + ANSWER));
            tls.write_all(&response.to_bytes(method, keep_alive))?;
            tls.flush()?;
            if !keep_alive {
                return Ok(End::Answered);
            }
        }
    }

    /// Waits until `buffer` holds something of the next request, or the connection is to end instead.
    fn wait_for_more(&self, tls: &mut TlsStream, buffer: &mut Vec<u8>) -> io::Result<Option<End>> {
        let mut limit = Instant::now() + IDLE;
        let mut chunk = [0; 2_048];
        tls.set_nonblocking();
        while buffer.is_empty() {
            // Read before the wait: what is decrypted already is not announced by the socket.
            match tls.read(&mut chunk) {
                Ok(0) => return Ok(Some(End::Peer)),
                Ok(length) => buffer.extend(chunk.iter().take(length)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let is_late = Instant::now() >= limit;
                    let woken = self.stop.wait(Some(tls.as_fd()), Some(GLANCE))?;
                    if woken == Woken::Ready && !is_late {
                        // A request has begun, and may come byte by byte.
                        limit = limit.min(Instant::now() + REQUEST);
                    } else if is_late || self.is_short_of_workers() || self.is_over(tls) {
                        return Ok(Some(End::Idle));
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Whether this connection, or everything, is to end.
    fn is_over(&self, tls: &TlsStream) -> bool {
        tls.is_draining() || self.stop.is_set()
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

/// What `GET /` answers: the generation that *this* connection uses.
fn describe(tls: &TlsStream) -> String {
    let leaf = tls.leaf();
    // rustls writes `TLSv1_3`.
    let protocol = tls.tls().protocol_version().and_then(|version| version.as_str());
    let protocol = protocol.unwrap_or_default().replace('_', ".");
    format!(
        "{{\"generation\":{},\"serial\":{},\"fingerprint_sha256\":{},\"not_after\":{},\"protocol\":{}}}\n",
        tls.generation(),
        http::json_string(leaf.serial()),
        http::json_string(&leaf.fingerprint().to_string()),
        http::json_string(&clock::rfc3339(leaf.validity().not_after)),
        http::json_string(&protocol),
    )
}
