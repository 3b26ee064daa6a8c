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

/// All `reloaders` have to be well for the gateway to be well.
pub(crate) fn start(
    listener: TcpListener,
    reloaders: Vec<Reloader>,
    registry: Registry,
    stop: Arc<Stop>,
) -> io::Result<JoinHandle<()>> {
    accept::start("admin", listener, stop, move |stream| {
        if let Err(error) = answer(stream, &reloaders, &registry) {
            log::debug!("admin connection ended: {error}");
        }
    })
}

fn answer(stream: TcpStream, reloaders: &[Reloader], registry: &Registry) -> io::Result<()> {
    let mut socket = Socket::new(stream, LIMIT)?;
    let (response, method) = match http::read(&mut socket, &mut Vec::new())? {
        Received::Request(request) => {
            let response = match (request.method, request.path.as_str()) {
                (Method::Other, _) => Response::plain(Status::MethodNotAllowed),
                (_, "/healthz") => health(reloaders, |health| health.is_ready() && health.is_live()),
                (_, "/livez") => health(reloaders, Health::is_live),
                (_, "/metrics") => metrics(registry),
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

/// One object a certificate, under its name in logs and metrics.
fn health(reloaders: &[Reloader], is_well: impl Fn(&Health) -> bool) -> Response {
    let healths: Vec<_> = reloaders.iter().map(|reloader| (reloader.identity(), reloader.health())).collect();
    let status = match healths.iter().all(|(_, health)| is_well(health)) {
        true => Status::Ok,
        false => Status::Unavailable,
    };
    let parts = healths.iter().map(|(identity, health)| {
        format!(
            "{}:{{\"ready\":{},\"live\":{},\"state\":{},\"health\":{}}}",
            http::json_string(identity),
            health.is_ready(),
            health.is_live(),
            http::json_string(health.as_str()),
            http::json_string(&health.to_string()),
        )
    });
    Response::json(status, format!("{{{}}}\n", parts.collect::<Vec<_>>().join(",")))
}

/// All series of the library and of the gateway, in the text format that every Prometheus reads.
fn metrics(registry: &Registry) -> Response {
    let mut body = String::new();
    match prometheus_text::encode(&mut body, registry) {
        Ok(()) => Response { status: Status::Ok, content_type: prometheus_text::CONTENT_TYPE, body },
        Err(_) => Response::plain(Status::Unavailable),
    }
}
