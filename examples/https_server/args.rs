//! The command line. Knows no defaults of the library, only those of this program.

use std::ffi::OsString;
use std::path::PathBuf;

use rustls_reload::{ClientAuth, Paths};

pub(crate) const USAGE: &str = "\
A blocking HTTPS server whose certificate follows the files on disk.

usage: https_server [--rotations N] [options]                 a demonstration, with a CA of its own
       https_server --secret DIR [options]                    tls.crt, tls.key and ca.crt in a directory
       https_server --cert FILE --key FILE [--ca FILE] [options]

files:
  --secret DIR              a mounted Kubernetes Secret
  --cert FILE, --key FILE   certificate chain (leaf first) and private key, PEM
  --ca FILE                 certificates that verify clients, PEM; wants --client-auth

options:
  --listen ADDR             host:port for HTTPS (default 127.0.0.1:8443; demonstration: any free port)
  --client-auth optional|required
                            verify client certificates (default: none are asked for)
  --admin ADDR              host:port for plain HTTP with /healthz, /livez, /metrics (default: none)
  --poll                    look at the files every 2 s instead of waiting for the kernel's word
  --workers N               threads that serve, one connection each at a time (default 64)
  --rotations N             demonstration: end after N rotations, with a summary
  --help

signals: SIGINT and SIGTERM end the server, SIGHUP checks the files at once.
environment: RUST_LOG=off|error|warn|info|debug|trace";

/// What is to be done.
pub(crate) enum Command {
    Help,
    Run(Options),
}

/// How the server is to run.
pub(crate) struct Options {
    pub(crate) source: Source,
    pub(crate) listen: String,
    pub(crate) client_auth: ClientAuth,
    pub(crate) admin: Option<String>,
    pub(crate) poll: bool,
    pub(crate) workers: usize,
}

/// Where the certificate comes from.
pub(crate) enum Source {
    Demo { rotations: Option<u32> },
    Files(Paths),
}

/// Reads the arguments, without the name of the program. An error is one line for the user.
pub(crate) fn parse(args: impl Iterator<Item = OsString>) -> Result<Command, String> {
    let mut given = Given::default();
    let mut args = args;
    while let Some(arg) = args.next() {
        // A file name may be no UTF-8, an option is.
        let Some(option) = arg.to_str().filter(|text| text.starts_with('-')) else {
            return Err(format!("unexpected argument {arg:?}"));
        };
        let (name, joined) = match option.split_once('=') {
            Some((name, value)) => (name, Some(OsString::from(value))),
            None => (option, None),
        };
        if matches!(name, "--help" | "-h" | "--poll") {
            if joined.is_some() {
                return Err(format!("{name} takes no value"));
            }
            if name != "--poll" {
                return Ok(Command::Help);
            }
            given.poll = true;
            continue;
        }
        let slot = given.slot(name).ok_or_else(|| format!("unknown option {name}"))?;
        let value = joined
            .or_else(|| args.next())
            .filter(|value| !value.is_empty())
            .ok_or_else(|| format!("{name} needs a value"))?;
        if slot.replace(value).is_some() {
            return Err(format!("{name} is given twice"));
        }
    }
    given.check().map(Command::Run)
}

/// The options as they stand on the command line.
#[derive(Default)]
struct Given {
    secret: Option<OsString>,
    cert: Option<OsString>,
    key: Option<OsString>,
    ca: Option<OsString>,
    listen: Option<OsString>,
    client_auth: Option<OsString>,
    admin: Option<OsString>,
    workers: Option<OsString>,
    rotations: Option<OsString>,
    poll: bool,
}

impl Given {
    fn slot(&mut self, name: &str) -> Option<&mut Option<OsString>> {
        Some(match name {
            "--secret" => &mut self.secret,
            "--cert" => &mut self.cert,
            "--key" => &mut self.key,
            "--ca" => &mut self.ca,
            "--listen" => &mut self.listen,
            "--client-auth" => &mut self.client_auth,
            "--admin" => &mut self.admin,
            "--workers" => &mut self.workers,
            "--rotations" => &mut self.rotations,
            _ => return None,
        })
    }

    fn check(self) -> Result<Options, String> {
        let client_auth = match self.client_auth.as_ref().map(|value| value.to_str()) {
            None => ClientAuth::None,
            Some(Some("optional")) => ClientAuth::Optional,
            Some(Some("required")) => ClientAuth::Required,
            Some(_) => return Err("--client-auth is either optional or required".to_owned()),
        };
        let verifies = self.client_auth.is_some();
        let rotations = self.rotations.map(|value| number("--rotations", value)).transpose()?;
        let source = match (self.secret, self.cert, self.key, self.ca) {
            (None, None, None, None) if verifies => {
                return Err("--client-auth needs --secret or --ca".to_owned());
            }
            (None, None, None, None) => Source::Demo { rotations },
            _ if rotations.is_some() => {
                return Err("--rotations is for the demonstration, which has no files of yours".to_owned());
            }
            (Some(dir), None, None, None) => Source::Files(Paths::secret(PathBuf::from(dir))),
            (Some(_), ..) => return Err("--secret stands for --cert, --key and --ca: give either".to_owned()),
            (None, Some(cert), Some(key), None) if !verifies => Source::Files(Paths::new(cert, key)),
            (None, Some(_), Some(_), None) => return Err("--client-auth needs --ca".to_owned()),
            (None, Some(_), Some(_), Some(_)) if !verifies => {
                return Err("--ca needs --client-auth optional or required".to_owned());
            }
            (None, Some(cert), Some(key), Some(ca)) => Source::Files(Paths::new(cert, key).with_ca(ca)),
            (None, ..) => return Err("--cert and --key go together".to_owned()),
        };
        let listen = match (self.listen, &source) {
            (Some(value), _) => address("--listen", value)?,
            (None, Source::Demo { .. }) => "127.0.0.1:0".to_owned(),
            (None, Source::Files(_)) => "127.0.0.1:8443".to_owned(),
        };
        Ok(Options {
            source,
            listen,
            client_auth,
            admin: self.admin.map(|value| address("--admin", value)).transpose()?,
            poll: self.poll,
            workers: self.workers.map_or(Ok(64), |value| number("--workers", value))?,
        })
    }
}

/// A number from 1 on.
fn number<T: TryFrom<u32>>(name: &str, value: OsString) -> Result<T, String> {
    value
        .to_str()
        .and_then(|text| text.parse::<u32>().ok())
        .filter(|number| *number > 0)
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| format!("{name}: expected a number from 1 on, found {value:?}"))
}

/// Looks at the shape only: the name is resolved when it is bound.
fn address(name: &str, value: OsString) -> Result<String, String> {
    let fits = |text: &&str| {
        text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
    };
    value
        .to_str()
        .filter(fits)
        .map(str::to_owned)
        .ok_or_else(|| format!("{name}: expected host:port, found {value:?}"))
}
