//! What is answered to a request.

use std::time::Duration;

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Version};
use rustls_reload::Generation;

use crate::body;

/// The longest stream.
const MAX_LENGTH: u64 = 1 << 30;
/// The slowest.
const MAX_SECONDS: u64 = 600;

type Body = BoxBody<Bytes, hyper::Error>;

/// What a connection has to say of itself, but for the protocol: the fields of a JSON object.
pub(crate) struct About(String);

impl About {
    pub(crate) fn new(generation: Option<&Generation>) -> Self {
        Self(match generation {
            Some(generation) => {
                let leaf = generation.bundle().leaf();
                // Both are hexadecimal digits: nothing to escape.
                format!(
                    "\"generation\":{},\"serial\":\"{}\",\"fingerprint_sha256\":\"{}\"",
                    generation.number(),
                    leaf.serial(),
                    leaf.fingerprint()
                )
            }
            None => "\"generation\":null,\"serial\":null,\"fingerprint_sha256\":null".to_owned(),
        })
    }
}

pub(crate) fn answer(request: Request<Incoming>, about: &About) -> Response<Body> {
    match (request.method(), request.uri().path()) {
        (&Method::POST, "/echo") => Response::new(request.into_body().boxed()),
        (_, "/echo") => not_allowed("POST"),
        (&Method::GET, "/") => {
            let protocol = if request.version() == Version::HTTP_2 { "h2" } else { "http/1.1" };
            let mut response = whole(format!("{{{},\"protocol\":\"{protocol}\"}}\n", about.0));
            set(&mut response, CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        (&Method::GET, path) => match path.strip_prefix("/bytes/") {
            Some(length) => match wanted(length, request.uri().query()) {
                Some((length, over)) => {
                    let mut response =
                        Response::new(body::stream(length, over).map_err(|never| match never {}).boxed());
                    // Announced, so that a client knows of a stream that was cut short.
                    set(&mut response, CONTENT_LENGTH, length.into());
                    response
                }
                None => plain(StatusCode::BAD_REQUEST),
            },
            None => plain(StatusCode::NOT_FOUND),
        },
        _ => not_allowed("GET"),
    }
}

/// Length and time of a stream, if they are within bounds.
fn wanted(length: &str, query: Option<&str>) -> Option<(u64, Duration)> {
    let number = |text: &str, max: u64| text.parse().ok().filter(|number| *number <= max);
    let seconds = match query {
        Some(query) => number(query.strip_prefix("over=")?, MAX_SECONDS)?,
        None => 0,
    };
    Some((number(length, MAX_LENGTH)?, Duration::from_secs(seconds)))
}

fn not_allowed(allowed: &'static str) -> Response<Body> {
    let mut response = plain(StatusCode::METHOD_NOT_ALLOWED);
    set(&mut response, ALLOW, HeaderValue::from_static(allowed));
    response
}

/// An answer that consists of its status.
fn plain(status: StatusCode) -> Response<Body> {
    let mut response = whole(format!("{status}\n"));
    *response.status_mut() = status;
    response
}

fn whole(text: String) -> Response<Body> {
    Response::new(Full::from(text).map_err(|never| match never {}).boxed())
}

fn set(response: &mut Response<Body>, name: HeaderName, value: HeaderValue) {
    response.headers_mut().insert(name, value);
}
