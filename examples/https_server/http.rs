//! As much of HTTP/1.1 as a server needs whose answers are short and whose requests have no body.

use std::io::{self, Read};

use crate::clock;

/// Longest request line with its headers.
const MAX_HEAD: usize = 8 * 1_024;
/// Most headers.
const MAX_HEADERS: usize = 64;

/// A request without its body. Bodies are not read: the connection ends after the answer.
pub(crate) struct Request {
    pub(crate) method: Method,
    /// Without the query.
    pub(crate) path: String,
    pub(crate) keep_alive: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Head,
    Other,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Ok,
    BadRequest,
    NotFound,
    MethodNotAllowed,
    HeadTooLarge,
    Unavailable,
    Version,
}

/// What is sent back.
pub(crate) struct Response {
    pub(crate) status: Status,
    pub(crate) content_type: &'static str,
    pub(crate) body: String,
}

/// What came in.
pub(crate) enum Received {
    Request(Request),
    /// Not a request that can be served; after the answer, the connection is of no use any more.
    Refused(Status),
    /// The peer has no more requests.
    End,
}

/// Reads one request. `buffer` keeps what came after it, for the next call.
pub(crate) fn read(stream: &mut impl Read, buffer: &mut Vec<u8>) -> io::Result<Received> {
    let mut chunk = [0; 2_048];
    loop {
        match parse(buffer) {
            Parsed::Whole(request, length) => {
                buffer.drain(..length);
                return Ok(Received::Request(request));
            }
            Parsed::Bad(status) => return Ok(Received::Refused(status)),
            Parsed::Partial if buffer.len() >= MAX_HEAD => {
                return Ok(Received::Refused(Status::HeadTooLarge));
            }
            Parsed::Partial => {}
        }
        match stream.read(&mut chunk) {
            Ok(0) if buffer.is_empty() => return Ok(Received::End),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => buffer.extend(chunk.iter().take(length)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

impl Response {
    pub(crate) fn json(status: Status, body: String) -> Self {
        Self { status, content_type: "application/json", body }
    }

    /// An answer that consists of its status.
    pub(crate) fn plain(status: Status) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", body: format!("{}\n", status.reason()) }
    }

    /// The bytes. For `HEAD` without the body, which is announced all the same.
    pub(crate) fn to_bytes(&self, method: Method, keep_alive: bool) -> Vec<u8> {
        let connection = if keep_alive { "keep-alive" } else { "close" };
        let allow = match self.status {
            Status::MethodNotAllowed => "Allow: GET, HEAD\r\n",
            _ => "",
        };
        let mut out = format!(
            "HTTP/1.1 {} {}\r\nDate: {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{allow}Connection: {connection}\r\n\r\n",
            self.status.code(),
            self.status.reason(),
            clock::http_date(clock::now()),
            self.content_type,
            self.body.len(),
        );
        if method != Method::Head {
            out.push_str(&self.body);
        }
        out.into_bytes()
    }
}

impl Status {
    fn code(self) -> u16 {
        match self {
            Self::Ok => 200,
            Self::BadRequest => 400,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::HeadTooLarge => 431,
            Self::Unavailable => 503,
            Self::Version => 505,
        }
    }

    fn reason(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::BadRequest => "Bad Request",
            Self::NotFound => "Not Found",
            Self::MethodNotAllowed => "Method Not Allowed",
            Self::HeadTooLarge => "Request Header Fields Too Large",
            Self::Unavailable => "Service Unavailable",
            Self::Version => "HTTP Version Not Supported",
        }
    }
}

/// A JSON string with its quotes (RFC 8259 §7).
pub(crate) fn json_string(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

enum Parsed {
    Whole(Request, usize),
    Partial,
    Bad(Status),
}

fn parse(buffer: &[u8]) -> Parsed {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut head = httparse::Request::new(&mut headers);
    let length = match head.parse(buffer) {
        Ok(httparse::Status::Complete(length)) if length <= MAX_HEAD => length,
        Ok(httparse::Status::Complete(_)) | Err(httparse::Error::TooManyHeaders) => {
            return Parsed::Bad(Status::HeadTooLarge);
        }
        Ok(httparse::Status::Partial) => return Parsed::Partial,
        Err(httparse::Error::Version) => return Parsed::Bad(Status::Version),
        Err(_) => return Parsed::Bad(Status::BadRequest),
    };
    let all = |name: &'static str| {
        head.headers
            .iter()
            .filter(move |header| header.name.eq_ignore_ascii_case(name))
            .map(|header| String::from_utf8_lossy(header.value))
    };
    let says = |wanted: &str| {
        all("connection").any(|value| value.split(',').any(|token| token.trim().eq_ignore_ascii_case(wanted)))
    };
    let newer = head.version == Some(1);
    // RFC 9112 §3.2: one Host, no more and no less.
    if newer && all("host").count() != 1 {
        return Parsed::Bad(Status::BadRequest);
    }
    let has_body =
        all("transfer-encoding").next().is_some() || all("content-length").any(|value| value.trim() != "0");
    let target = head.path.unwrap_or_default();
    let request = Request {
        method: match head.method {
            Some("GET") => Method::Get,
            Some("HEAD") => Method::Head,
            _ => Method::Other,
        },
        path: target.split('?').next().unwrap_or_default().to_owned(),
        keep_alive: !has_body && if newer { !says("close") } else { says("keep-alive") },
    };
    Parsed::Whole(request, length)
}
