//! Plain HTTP for machines that watch over this one: `/healthz` and `/metrics`.

use std::io::{self, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustls_reload::Reloader;

use crate::accept;
use crate::http::{self, Method, Received, Response, Status};
use crate::service::IDENTITY;
use crate::socket::Socket;
use crate::stop::Stop;

/// For one request and its answer: there is one thread, and the next one waits.
const LIMIT: Duration = Duration::from_secs(2);

pub(crate) fn start(
    listener: TcpListener,
    reloader: Arc<Reloader>,
    stop: Arc<Stop>,
) -> io::Result<JoinHandle<()>> {
    accept::start("admin", listener, stop, move |stream| {
        if let Err(error) = answer(stream, &reloader) {
            log::debug!("admin connection ended: {error}");
        }
    })
}

fn answer(stream: TcpStream, reloader: &Reloader) -> io::Result<()> {
    let mut socket = Socket::new(stream, LIMIT)?;
    let (response, method) = match http::read(&mut socket, &mut Vec::new())? {
        Received::Request(request) => {
            let response = match (request.method, request.path.as_str()) {
                (Method::Other, _) => Response::plain(Status::MethodNotAllowed),
                (_, "/healthz") => health(reloader),
                (_, "/metrics") => metrics(reloader),
                _ => Response::plain(Status::NotFound),
            };
            (response, request.method)
        }
        Received::Refused(status) => (Response::plain(status), Method::Other),
        Received::End => return Ok(()),
    };
    socket.write_all(&response.to_bytes(method, false))?;
    socket.linger();
    Ok(())
}

fn health(reloader: &Reloader) -> Response {
    let health = reloader.health();
    let status = if health.is_ready() && health.is_live() { Status::Ok } else { Status::Unavailable };
    let body = format!(
        "{{\"ready\":{},\"live\":{},\"health\":{}}}\n",
        health.is_ready(),
        health.is_live(),
        http::json_string(&health.to_string()),
    );
    Response::json(status, body)
}

/// The text format of Prometheus, version 0.0.4. Two of these series are also what tells a rotation that
/// works from one that does not.
fn metrics(reloader: &Reloader) -> Response {
    let current = reloader.current();
    let mut body = String::new();
    let mut series = |name: &str, kind: &str, help: &str, labels: &str, value: String| {
        body.push_str(&format!(
            "# HELP {name} {help}\n# TYPE {name} {kind}\n{name}{{identity=\"{IDENTITY}\"{labels}}} {value}\n"
        ));
    };
    series(
        "tls_reload_generation",
        "gauge",
        "Number of the generation that new handshakes get, 0 before the first.",
        "",
        current.as_ref().map_or(0, |generation| generation.number()).to_string(),
    );
    series(
        "tls_reload_failures_total",
        "counter",
        "Checks of the files that ended without a usable generation.",
        "",
        reloader.stats().failures.to_string(),
    );
    series(
        "tls_reload_ready",
        "gauge",
        "1 while the server can complete handshakes, else 0.",
        "",
        u8::from(reloader.health().is_ready()).to_string(),
    );
    if let Some(generation) = current {
        series(
            "tls_cert_not_after_timestamp_seconds",
            "gauge",
            "When the certificate that new handshakes get expires.",
            ",kind=\"leaf\"",
            generation.bundle().leaf().validity().not_after.to_string(),
        );
    }
    Response { status: Status::Ok, content_type: "text/plain; version=0.0.4; charset=utf-8", body }
}
