//! Accepts connections, and serves each in a task of its own until a signal ends it all.

use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use crate::answer::{About, answer};
use crate::say;
use crate::tls::{H2, Tls};

/// For the whole handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// For the head of a request with HTTP/1.1, the wait for it included.
const HEAD: Duration = Duration::from_secs(60);
/// Between two pings to a silent client with HTTP/2, and for its answer.
const PING: Duration = Duration::from_secs(20);
/// What a client may have open, and what is kept for each that does not read.
const STREAMS: u32 = 128;
const BUFFER: usize = 64 * 1_024;
/// How long the end waits for requests that run.
const GRACE: Duration = Duration::from_secs(5);
/// How long to wait when the system has no descriptor left for us.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves until `stop`. With HTTP/2 clients are told by GOAWAY then.
pub(crate) async fn serve(listener: TcpListener, tls: Arc<Tls>, stop: impl Future<Output = ()>) {
    let graceful = GracefulShutdown::new();
    let mut stop = pin!(stop);
    loop {
        let accepted = tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let (tls, watcher) = (Arc::clone(&tls), graceful.watcher());
                tokio::spawn(async move {
                    // Clients come and go as they like: no line of ours.
                    serve_one(stream, &tls, watcher).await.ok();
                });
            }
            Err(error) if is_about_one_client(&error) => {}
            Err(error) => {
                say(&format!("cannot accept connections for now: {error}"));
                // The connection stays in the queue: without a pause this would spin.
                sleep(PAUSE).await;
            }
        }
    }
    drop(listener);
    if timeout(GRACE, graceful.shutdown()).await.is_err() {
        say("some requests were not done at the end");
    }
}

async fn serve_one(
    stream: TcpStream,
    tls: &Tls,
    watcher: Watcher,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    stream.set_nodelay(true)?;
    let shaken = timeout(HANDSHAKE, tls.shake_hands(stream)).await??;
    let (_, connection) = shaken.stream.get_ref();
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD);
    let mut http2 = builder.http2();
    http2.timer(TokioTimer::new()).keep_alive_interval(PING).keep_alive_timeout(PING);
    http2.max_concurrent_streams(STREAMS).max_send_buf_size(BUFFER);
    // What was agreed on holds; without ALPN it is the older protocol (RFC 9113 §3.2).
    let builder = match connection.alpn_protocol() {
        Some(protocol) if protocol == H2.as_bytes() => builder.http2_only(),
        _ => builder.http1_only(),
    };
    let about = Arc::new(About::new(shaken.generation.as_deref()));
    let service = service_fn(move |request| {
        let answer = answer(request, &about);
        async { Ok::<_, Infallible>(answer) }
    });
    watcher.watch(builder.serve_connection(TokioIo::new(shaken.stream), service)).await
}

fn is_about_one_client(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset)
}
