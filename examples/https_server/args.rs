//! The command line. Knows no defaults of the library, only those of this program.

use std::ffi::OsString;

use rustls_reload::{ClientAuth, Paths};

use crate::command_line::{self, Files, address};

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
    command_line::read::<Given>(args)?.map_or(Ok(Command::Help), |given| given.check().map(Command::Run))
}

/// The options as they stand on the command line.
#[derive(Default)]
struct Given {
    files: Files,
    listen: Option<OsString>,
    admin: Option<OsString>,
    workers: Option<OsString>,
    rotations: Option<OsString>,
    poll: bool,
}

impl command_line::Options for Given {
    fn slot(&mut self, name: &str) -> Option<&mut Option<OsString>> {
        Some(match name {
            "--listen" => &mut self.listen,
            "--admin" => &mut self.admin,
            "--workers" => &mut self.workers,
            "--rotations" => &mut self.rotations,
            _ => return self.files.slot(name),
        })
    }

    fn flag(&mut self, name: &str) -> bool {
        let is_poll = name == "--poll";
        self.poll |= is_poll;
        is_poll
    }
}

impl Given {
    fn check(self) -> Result<Options, String> {
        let rotations = self.rotations.map(|value| number("--rotations", value)).transpose()?;
        let (paths, client_auth) = self.files.check()?;
        let source = match paths {
            Some(_) if rotations.is_some() => {
                return Err("--rotations is for the demonstration, which has no files of yours".to_owned());
            }
            Some(paths) => Source::Files(paths),
            None if client_auth != ClientAuth::None => {
                return Err("--client-auth needs --secret or --ca".to_owned());
            }
            None => Source::Demo { rotations },
        };
        let listen = match (self.listen, &source) {
            (Some(value), _) => address("--listen", &value)?,
            (None, Source::Demo { .. }) => "127.0.0.1:0".to_owned(),
            (None, Source::Files(_)) => "127.0.0.1:8443".to_owned(),
        };
        Ok(Options {
            source,
            listen,
            client_auth,
            admin: self.admin.map(|value| address("--admin", &value)).transpose()?,
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
