//! Plain HTTP for machines that watch over this one: `/healthz`, `/livez` and `/metrics`.

use std::io::{self, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use prometheus_client::encoding::prometheus_text;
use prometheus_client::registry::Registry;
use rustls_reload::{Health, Reloader};

use crate::accept;
use crate::http::{self, Method, Received, Response, Status};
use crate::socket::Socket;
use crate::stop::Stop;

/// For one request and its answer: there is one thread, and the next one waits.
const LIMIT: Duration = Duration::from_secs(2);

/// What `/healthz` and `/livez` say of each reloader, by its name in logs and metrics.
pub(crate) type Describe = fn(&[(&str, Health)]) -> String;

/// All `reloaders` have to be well for the program to be well.
pub(crate) fn start(
    listener: TcpListener,
    reloaders: Vec<Reloader>,
    describe: Describe,
    registry: Registry,
    stop: Arc<Stop>,
) -> io::Result<JoinHandle<()>> {
    let admin = Admin { reloaders, describe, registry };
    accept::start("admin", listener, stop, move |stream| {
        if let Err(error) = admin.answer(stream) {
            log::debug!("admin connection ended: {error}");
        }
    })
}

/// One health, as JSON.
pub(crate) fn describe(health: &Health) -> String {
    format!(
        "{{\"ready\":{},\"live\":{},\"state\":{},\"health\":{}}}",
        health.is_ready(),
        health.is_live(),
        http::json_string(health.as_str()),
        http::json_string(&health.to_string()),
    )
}

struct Admin {
    reloaders: Vec<Reloader>,
    describe: Describe,
    registry: Registry,
}

impl Admin {
    fn answer(&self, stream: TcpStream) -> io::Result<()> {
        let mut socket = Socket::new(stream, LIMIT)?;
        let (response, method) = match http::read(&mut socket, &mut Vec::new())? {
            Received::Request(request) => {
                let response = match (request.method, request.path.as_str()) {
                    (Method::Other, _) => Response::plain(Status::MethodNotAllowed),
                    (_, "/healthz") => self.health(|health| health.is_ready() && health.is_live()),
                    (_, "/livez") => self.health(Health::is_live),
                    (_, "/metrics") => self.metrics(),
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

    fn health(&self, is_well: impl Fn(&Health) -> bool) -> Response {
        let healths: Vec<_> =
            self.reloaders.iter().map(|reloader| (reloader.identity(), reloader.health())).collect();
        let all_well = healths.iter().all(|(_, health)| is_well(health));
        let status = if all_well { Status::Ok } else { Status::Unavailable };
        Response::json(status, format!("{}\n", (self.describe)(&healths)))
    }

    /// All series of the registry, in the text format that every Prometheus reads.
    fn metrics(&self) -> Response {
        let mut body = String::new();
        match prometheus_text::encode(&mut body, &self.registry) {
            Ok(()) => Response { status: Status::Ok, content_type: prometheus_text::CONTENT_TYPE, body },
            Err(_) => Response::plain(Status::Unavailable),
        }
    }
}
