//! Where the files of one TLS identity lie: certificate, key and, where wanted, CA, CRL and OCSP response.
//!
//! Knows names only; nothing here touches the disk.

use std::fmt;
use std::path::{Path, PathBuf};

/// The files of one identity.
///
/// Certificate and key are always there; the others are optional. The same path may serve as
/// certificate and key ([`Paths::combined`]). A relative path is taken from the directory that is
/// current when the reloader starts; a later `chdir` changes nothing.
///
/// ```
/// use rustls_reload::Paths;
///
/// let mount = Paths::secret("/etc/tls");
/// assert_eq!(mount.cert().to_str(), Some("/etc/tls/tls.crt"));
/// let pair = Paths::new("/etc/pki/relay.crt", "/etc/pki/relay.key").with_ca("/etc/pki/clients.crt");
/// assert!(pair.ca().is_some());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    cert: PathBuf,
    key: PathBuf,
    ca: Option<PathBuf>,
    ca_presence: Presence,
    crls: Vec<PathBuf>,
    ocsp: Option<PathBuf>,
}

impl Paths {
    /// A certificate chain and its key.
    pub fn new(cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self {
            cert: cert.into(),
            key: key.into(),
            ca: None,
            ca_presence: Presence::Required,
            crls: Vec::new(),
            ocsp: None,
        }
    }

    /// A mounted Kubernetes Secret of type `kubernetes.io/tls`: `tls.crt`, `tls.key` and `ca.crt`.
    ///
    /// `ca.crt` may be missing, unless it verifies clients, or is the only thing that verifies servers: then
    /// nothing is published without it. Else, when it disappears later, the trust it gave is withdrawn.
    pub fn secret(dir: impl AsRef<Path>) -> Self {
        let dir = dir.as_ref();
        Self {
            ca: Some(dir.join("ca.crt")),
            ca_presence: Presence::Optional,
            ..Self::new(dir.join("tls.crt"), dir.join("tls.key"))
        }
    }

    /// A certbot lineage, for example `/etc/letsencrypt/live/example.com`: `fullchain.pem` and `privkey.pem`.
    pub fn certbot(live: impl AsRef<Path>) -> Self {
        let live = live.as_ref();
        Self::new(live.join("fullchain.pem"), live.join("privkey.pem"))
    }

    /// One file that holds chain and key, in any order.
    pub fn combined(file: impl Into<PathBuf>) -> Self {
        let file = file.into();
        Self::new(file.clone(), file)
    }

    /// Adds the file of the certificates that verify the peer. It must be there: while it is
    /// missing, no new generation is published.
    #[must_use]
    pub fn with_ca(self, path: impl Into<PathBuf>) -> Self {
        Self { ca: Some(path.into()), ca_presence: Presence::Required, ..self }
    }

    /// Adds certificate revocation lists: a file (PEM, or one list in DER), or a directory of such files. May be
    /// called repeatedly. Each must be there, like the CA file.
    ///
    /// In a directory every regular file, and every link to one, is a CRL file, unless its name starts with a dot:
    /// whoever puts a file there writes it under such a name, or elsewhere, and renames it in. Subdirectories are
    /// passed over. A mounted ConfigMap or Secret will do, and so will a directory within one.
    ///
    /// With CRLs, every certificate of a peer's chain must be covered by one, or the peer is refused; one that is
    /// expired stays in force with a warning, see [`CrlExpiry`](crate::CrlExpiry). Of several about the same, the
    /// newest counts.
    ///
    /// Fails closed: a directory without a CRL file, one with more than 1,024 names, and one with a single bad
    /// file, refuse the generation. The files are open all at once while they are read.
    #[must_use]
    pub fn with_crl(mut self, path: impl Into<PathBuf>) -> Self {
        self.crls.push(path.into());
        self
    }

    /// Adds the OCSP response (DER) to staple. While it is missing, nothing is stapled.
    #[must_use]
    pub fn with_ocsp(self, path: impl Into<PathBuf>) -> Self {
        Self { ocsp: Some(path.into()), ..self }
    }

    /// The certificate chain.
    pub fn cert(&self) -> &Path {
        &self.cert
    }

    /// The private key.
    pub fn key(&self) -> &Path {
        &self.key
    }

    /// The CA file, if one is configured.
    pub fn ca(&self) -> Option<&Path> {
        self.ca.as_deref()
    }

    /// The CRL files and directories of CRL files.
    pub fn crls(&self) -> &[PathBuf] {
        &self.crls
    }

    /// The OCSP response file, if one is configured.
    pub fn ocsp(&self) -> Option<&Path> {
        self.ocsp.as_deref()
    }

    /// The path that plays `role`, if one is configured; for CRLs, the first.
    pub fn get(&self, role: Role) -> Option<&Path> {
        match role {
            Role::Cert => Some(&self.cert),
            Role::Key => Some(&self.key),
            Role::Ca => self.ca(),
            Role::Crl => self.crls.first().map(PathBuf::as_path),
            Role::Ocsp => self.ocsp(),
        }
    }

    /// Every configured path, certificate first, with whether its absence refuses a generation.
    pub(crate) fn files(&self) -> impl Iterator<Item = (Role, &Path, Presence)> {
        let single = |role| Some((role, self.get(role)?));
        let before = [Role::Cert, Role::Key, Role::Ca].into_iter().filter_map(single);
        let crls = self.crls.iter().map(|path| (Role::Crl, path.as_path()));
        before.chain(crls).chain(single(Role::Ocsp)).map(|(role, path)| (role, path, self.presence(role)))
    }

    /// A CA file that may be missing becomes one that must be there: client authentication is wanted.
    pub(crate) fn require_ca(self) -> Self {
        Self { ca_presence: Presence::Required, ..self }
    }

    /// The same files, with relative paths taken from `current`.
    pub(crate) fn absolute_from(self, current: &Path) -> Self {
        Self {
            cert: current.join(self.cert),
            key: current.join(self.key),
            ca: self.ca.map(|path| current.join(path)),
            ca_presence: self.ca_presence,
            crls: self.crls.iter().map(|path| current.join(path)).collect(),
            ocsp: self.ocsp.map(|path| current.join(path)),
        }
    }

    fn presence(&self, role: Role) -> Presence {
        match role {
            Role::Cert | Role::Key | Role::Crl => Presence::Required,
            Role::Ca => self.ca_presence,
            Role::Ocsp => Presence::Optional,
        }
    }
}

/// What a file of an identity is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Role {
    /// The certificate chain, leaf first.
    Cert,
    /// The private key of the leaf.
    Key,
    /// The certificates that verify the peer.
    Ca,
    /// The certificate revocation lists for the peer's chain.
    Crl,
    /// The OCSP response that is stapled to the leaf.
    Ocsp,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cert => "certificate file",
            Self::Key => "key file",
            Self::Ca => "CA file",
            Self::Crl => "CRL file",
            Self::Ocsp => "OCSP response file",
        })
    }
}

/// Whether a file may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// A generation without it is refused.
    Required,
    /// Its absence is a state of its own.
    Optional,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_names_are_taken_from_the_current_directory() {
        let paths = Paths::new("c.crt", "/abs/c.key").absolute_from(Path::new("/srv"));
        assert_eq!(paths.cert(), Path::new("/srv/c.crt"));
        assert_eq!(paths.key(), Path::new("/abs/c.key"));
    }

    #[test]
    fn revocation_lists_come_from_any_number_of_paths() {
        let paths = Paths::new("c", "k").with_crl("a.crl").with_crl("/crls").absolute_from(Path::new("/srv"));
        let crls: Vec<_> = paths.files().filter(|(role, ..)| *role == Role::Crl).collect();
        let expected = ["/srv/a.crl", "/crls"].map(|path| (Role::Crl, Path::new(path), Presence::Required));
        assert_eq!(crls, expected);
    }

    #[test]
    fn ca_of_a_secret_is_optional_until_clients_are_verified() {
        let ca_presence =
            |paths: &Paths| paths.files().find(|(role, ..)| *role == Role::Ca).map(|(_, _, p)| p);
        let secret = Paths::secret("/m");
        assert_eq!(ca_presence(&secret), Some(Presence::Optional));
        assert_eq!(ca_presence(&secret.require_ca()), Some(Presence::Required));
    }
}
