//! What the command lines of these programs have in common: how options are written, and those that name the files
//! of a certificate.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use rustls_reload::{ClientAuth, Paths};

/// The options of a program as they stand on the command line.
pub(crate) trait Options: Default {
    /// Where the value of an option goes.
    fn slot(&mut self, name: &str) -> Option<&mut Option<OsString>>;

    /// Takes an option that has no value, if it is one.
    fn flag(&mut self, _name: &str) -> bool {
        false
    }
}

/// Reads the arguments, without the name of the program; `None` if help is asked for. An error is one line for the
/// user.
pub(crate) fn read<O: Options>(mut args: impl Iterator<Item = OsString>) -> Result<Option<O>, String> {
    let mut given = O::default();
    while let Some(arg) = args.next() {
        // A file name may be no UTF-8, an option is.
        let Some(option) = arg.to_str().filter(|text| text.starts_with('-')) else {
            return Err(format!("unexpected argument {arg:?}"));
        };
        let (name, joined) = match option.split_once('=') {
            Some((name, value)) => (name, Some(OsString::from(value))),
            None => (option, None),
        };
        let is_help = matches!(name, "--help" | "-h");
        if is_help || given.flag(name) {
            match joined {
                Some(_) => return Err(format!("{name} takes no value")),
                None if is_help => return Ok(None),
                None => continue,
            }
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
    Ok(Some(given))
}

/// The files of the certificate that is served, and of what verifies clients.
#[derive(Default)]
pub(crate) struct Files {
    secret: Option<OsString>,
    cert: Option<OsString>,
    key: Option<OsString>,
    ca: Option<OsString>,
    client_auth: Option<OsString>,
}

impl Files {
    pub(crate) fn slot(&mut self, name: &str) -> Option<&mut Option<OsString>> {
        Some(match name {
            "--secret" => &mut self.secret,
            "--cert" => &mut self.cert,
            "--key" => &mut self.key,
            "--ca" => &mut self.ca,
            "--client-auth" => &mut self.client_auth,
            _ => return None,
        })
    }

    /// The files, if any is named, and how clients are verified.
    pub(crate) fn check(self) -> Result<(Option<Paths>, ClientAuth), String> {
        let client_auth = self.client_auth()?;
        let verifies = client_auth != ClientAuth::None;
        let paths = match (self.secret, self.cert, self.key, self.ca) {
            (None, None, None, None) => return Ok((None, client_auth)),
            (Some(dir), None, None, None) => Paths::secret(PathBuf::from(dir)),
            (Some(_), ..) => return Err("--secret stands for --cert, --key and --ca: give either".to_owned()),
            (None, Some(cert), Some(key), None) if !verifies => Paths::new(cert, key),
            (None, Some(_), Some(_), None) => return Err("--client-auth needs --ca".to_owned()),
            (None, Some(_), Some(_), Some(_)) if !verifies => {
                return Err("--ca needs --client-auth optional or required".to_owned());
            }
            (None, Some(cert), Some(key), Some(ca)) => Paths::new(cert, key).with_ca(ca),
            (None, ..) => return Err("--cert and --key go together".to_owned()),
        };
        Ok((Some(paths), client_auth))
    }

    fn client_auth(&self) -> Result<ClientAuth, String> {
        match self.client_auth.as_deref().map(OsStr::to_str) {
            None => Ok(ClientAuth::None),
            Some(Some("optional")) => Ok(ClientAuth::Optional),
            Some(Some("required")) => Ok(ClientAuth::Required),
            Some(_) => Err("--client-auth is either optional or required".to_owned()),
        }
    }
}

/// Looks at the shape only: the name is resolved when it is used.
pub(crate) fn host_and_port(text: &OsStr) -> Option<String> {
    let text = text.to_str()?;
    let (host, port) = text.rsplit_once(':')?;
    // An IPv6 address stands in brackets (RFC 3986 §3.2.2): else its last group would be the port.
    let is_host = !host.is_empty() && (!host.contains(':') || host.starts_with('[') && host.ends_with(']'));
    (is_host && port.parse::<u16>().is_ok()).then(|| text.to_owned())
}

/// An option that is such an address.
pub(crate) fn address(name: &str, value: &OsStr) -> Result<String, String> {
    host_and_port(value).ok_or_else(|| format!("{name}: expected host:port, found {value:?}"))
}
