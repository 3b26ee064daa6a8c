//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

pub(crate) const USAGE: &str = "\
An HTTP/2 and HTTP/1.1 server whose certificate follows the files on disk.

usage: h2_server --secret DIR [--listen ADDR] [--fixed]

  --secret DIR    a mounted Kubernetes Secret: tls.crt, tls.key
  --listen ADDR   host:port (default 127.0.0.1:8443); with port 0 any free one, see the ready line
  --fixed         one ServerConfig for good, with the reloader's resolver, instead of one for each connection
  --help

answers:
  GET /                       the generation and certificate of this connection, as JSON
  GET /bytes/N[?over=SECS]    N bytes (at most 1 GiB), spread over SECS seconds (at most 600)
  POST /echo                  the body, while it comes

The line `serving on https://ADDR` on stderr says that it is ready. SIGINT and SIGTERM end it: requests that
run have 5 s.";

/// What is to be done.
pub(crate) enum Command {
    Help,
    Run(Options),
}

/// How the server is to run.
pub(crate) struct Options {
    pub(crate) secret: PathBuf,
    pub(crate) listen: String,
    pub(crate) config: Config,
}

/// Where a connection has its TLS config from.
pub(crate) enum Config {
    PerConnection,
    Fixed,
}

/// Reads the arguments, without the name of the program. An error is one line for the user.
pub(crate) fn parse(mut args: impl Iterator<Item = OsString>) -> Result<Command, String> {
    let (mut secret, mut listen, mut config) = (None, None, Config::PerConnection);
    while let Some(arg) = args.next() {
        // A file name may be no UTF-8, an option is.
        let Some(option) = arg.to_str().filter(|text| text.starts_with('-')) else {
            return Err(format!("unexpected argument {arg:?}"));
        };
        let (name, joined) = match option.split_once('=') {
            Some((name, value)) => (name, Some(OsString::from(value))),
            None => (option, None),
        };
        let slot = match name {
            "--help" | "-h" | "--fixed" if joined.is_some() => return Err(format!("{name} takes no value")),
            "--help" | "-h" => return Ok(Command::Help),
            "--fixed" => {
                config = Config::Fixed;
                continue;
            }
            "--secret" => &mut secret,
            "--listen" => &mut listen,
            _ => return Err(format!("unknown option {name}")),
        };
        let value = joined
            .or_else(|| args.next())
            .filter(|value| !value.is_empty())
            .ok_or_else(|| format!("{name} needs a value"))?;
        if slot.replace(value).is_some() {
            return Err(format!("{name} is given twice"));
        }
    }
    Ok(Command::Run(Options {
        secret: secret.ok_or("--secret is needed")?.into(),
        listen: listen.map_or_else(|| Ok("127.0.0.1:8443".to_owned()), address)?,
        config,
    }))
}

/// Has a host and a port at least: the name is resolved when it is bound.
fn address(value: OsString) -> Result<String, String> {
    let fits = |text: &&str| {
        text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
    };
    value
        .to_str()
        .filter(fits)
        .map(str::to_owned)
        .ok_or_else(|| format!("--listen: expected host:port, found {value:?}"))
}
