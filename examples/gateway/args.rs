//! The command line.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls_reload::{ClientAuth, Paths};

use crate::address::Address;
use crate::command_line::{self, Files};

pub(crate) const USAGE: &str = "\
A TLS gateway whose certificates and trust follow the files on disk.

usage: gateway --listen ADDR --secret DIR --connect ADDR [options]
       gateway --listen ADDR --cert FILE --key FILE [--ca FILE] --connect ADDR [options]

ADDR is host:port or unix:PATH.

in:
  --listen ADDR             where TLS clients connect to
  --secret DIR              tls.crt, tls.key and ca.crt in a directory, as a mounted Kubernetes Secret has them
  --cert FILE, --key FILE   certificate chain (leaf first) and private key, PEM
  --ca FILE                 certificates that verify clients, PEM; wants --client-auth
  --client-auth optional|required
                            verify client certificates (default: none are asked for)
out:
  --connect ADDR            where connections are relayed to, in plain text unless --connect-tls is given
  --connect-tls NAME        TLS to there; the server shows a certificate for this name
  --upstream-secret DIR     for --connect-tls: ca.crt verifies the server, tls.crt and tls.key are shown to it

  --admin ADDR              host:port for plain HTTP with /healthz, /livez, /metrics (default: none)
  --max-connections N       clients beyond N wait for a place (default 1024)
  --grace SECONDS           what open connections get after their trust was withdrawn, and at the end (default 5)
  --idle SECONDS            ends connections on which nothing moves for so long; 0: never (default 900)
  --help

signals: SIGINT and SIGTERM end the gateway, SIGHUP checks the files at once.
environment: RUST_LOG=off|error|warn|info|debug|trace";

/// What is to be done.
pub(crate) enum Command {
    Help,
    Run(Box<Options>),
}

/// How the gateway is to run.
pub(crate) struct Options {
    pub(crate) listen: Address,
    pub(crate) paths: Paths,
    pub(crate) client_auth: ClientAuth,
    pub(crate) connect: Address,
    pub(crate) tls: Option<UpstreamTls>,
    pub(crate) admin: Option<String>,
    pub(crate) max_connections: usize,
    pub(crate) grace: Duration,
    pub(crate) idle: Option<Duration>,
}

/// TLS on the way out.
pub(crate) struct UpstreamTls {
    pub(crate) name: ServerName<'static>,
    pub(crate) paths: Paths,
}

/// Reads the arguments, without the name of the program. An error is one line for the user.
pub(crate) fn parse(args: impl Iterator<Item = OsString>) -> Result<Command, String> {
    let given = command_line::read::<Given>(args)?;
    given.map_or(Ok(Command::Help), |given| given.check().map(Box::new).map(Command::Run))
}

/// The options as they stand on the command line.
#[derive(Default)]
struct Given {
    files: Files,
    listen: Option<OsString>,
    connect: Option<OsString>,
    connect_tls: Option<OsString>,
    upstream_secret: Option<OsString>,
    admin: Option<OsString>,
    max_connections: Option<OsString>,
    grace: Option<OsString>,
    idle: Option<OsString>,
}

impl command_line::Options for Given {
    fn slot(&mut self, name: &str) -> Option<&mut Option<OsString>> {
        Some(match name {
            "--listen" => &mut self.listen,
            "--connect" => &mut self.connect,
            "--connect-tls" => &mut self.connect_tls,
            "--upstream-secret" => &mut self.upstream_secret,
            "--admin" => &mut self.admin,
            "--max-connections" => &mut self.max_connections,
            "--grace" => &mut self.grace,
            "--idle" => &mut self.idle,
            _ => return self.files.slot(name),
        })
    }
}

impl Given {
    fn check(self) -> Result<Options, String> {
        let (paths, client_auth) = self.files.check()?;
        let paths = paths.ok_or("a certificate is missing: give --secret")?;
        let tls = match (self.connect_tls, self.upstream_secret) {
            (None, None) => None,
            (Some(name), Some(dir)) => {
                Some(UpstreamTls { name: server_name(&name)?, paths: Paths::secret(PathBuf::from(dir)) })
            }
            _ => return Err("--connect-tls and --upstream-secret go together".to_owned()),
        };
        let idle = seconds("--idle", self.idle, DEFAULT_IDLE)?;
        Ok(Options {
            listen: address("--listen", self.listen)?,
            paths,
            client_auth,
            connect: address("--connect", self.connect)?,
            tls,
            admin: self.admin.map(|value| command_line::address("--admin", &value)).transpose()?,
            max_connections: self.max_connections.map_or(Ok(DEFAULT_CONNECTIONS), connections)?,
            grace: seconds("--grace", self.grace, DEFAULT_GRACE)?,
            idle: (!idle.is_zero()).then_some(idle),
        })
    }
}

fn address(name: &str, value: Option<OsString>) -> Result<Address, String> {
    let value = value.ok_or_else(|| format!("{name} is missing"))?;
    Address::parse(&value).ok_or_else(|| format!("{name}: expected host:port or unix:PATH, found {value:?}"))
}

fn server_name(value: &OsStr) -> Result<ServerName<'static>, String> {
    let name = value.to_str().and_then(|name| ServerName::try_from(name.to_owned()).ok());
    name.ok_or_else(|| format!("--connect-tls: expected a DNS name or an IP address, found {value:?}"))
}

fn connections(value: OsString) -> Result<usize, String> {
    let number = value.to_str().and_then(|text| text.parse().ok()).filter(|number| *number > 0);
    number.ok_or_else(|| format!("--max-connections: expected a number from 1 on, found {value:?}"))
}

fn seconds(name: &str, value: Option<OsString>, default: Duration) -> Result<Duration, String> {
    let Some(value) = value else {
        return Ok(default);
    };
    // 32 bits: an instant so far away can be calculated with.
    let seconds = value.to_str().and_then(|text| text.parse::<u32>().ok());
    let seconds = seconds.ok_or_else(|| format!("{name}: expected whole seconds, found {value:?}"))?;
    Ok(Duration::from_secs(u64::from(seconds)))
}

const DEFAULT_CONNECTIONS: usize = 1024;

const DEFAULT_GRACE: Duration = Duration::from_secs(5);

/// A client that lost its power says nothing, and would hold its place for ever: at some time all would be taken.
/// The keep-alives of the usual protocols come more often (MQTT clients: mostly every 60 s).
const DEFAULT_IDLE: Duration = Duration::from_secs(900);
