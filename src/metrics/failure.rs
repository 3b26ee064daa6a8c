//! Why a handshake failed, as one of few words.

use std::io;

use rustls::{AlertDescription, CertificateError, Error, PeerIncompatible};

/// Why a handshake failed, seen from this side. Fixed, so that every series can exist from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum HandshakeFailure {
    /// A certificate was wanted and none was shown.
    NoClientCertificate,
    /// Nobody who issued the certificate is trusted, here or by the peer.
    UnknownCa,
    /// The certificate of the peer, or ours in the eyes of the peer, has expired.
    Expired,
    /// It was revoked.
    Revoked,
    /// It is bad otherwise.
    BadCertificate,
    /// No version of TLS in common.
    NoCommonVersion,
    /// No cipher suite, group or signature scheme in common.
    NoCommonCipher,
    /// No application protocol in common.
    NoCommonAlpn,
    /// There is no certificate for the name that the client wants, or none at all.
    NoCertificateForName,
    /// It took too long.
    Timeout,
    /// The peer went away.
    PeerClosed,
    /// Reading or writing failed.
    Io,
    /// Anything else: what came was not TLS, for example.
    Other,
}

impl HandshakeFailure {
    /// All there are.
    pub const ALL: &'static [Self] = &[
        Self::NoClientCertificate,
        Self::UnknownCa,
        Self::Expired,
        Self::Revoked,
        Self::BadCertificate,
        Self::NoCommonVersion,
        Self::NoCommonCipher,
        Self::NoCommonAlpn,
        Self::NoCertificateForName,
        Self::Timeout,
        Self::PeerClosed,
        Self::Io,
        Self::Other,
    ];

    /// What an error of `complete_io` means. Those of rustls come wrapped, and are looked at.
    pub fn of(error: &io::Error) -> Self {
        if let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            return Self::of_tls(error);
        }
        // As `HandshakeError` carries it, and whoever wraps it once more.
        if let Some(error) = error.get_ref().and_then(|inner| inner.source()?.downcast_ref::<io::Error>()) {
            return Self::of(error);
        }
        match error.kind() {
            // A socket with a timeout says the one or the other, by platform.
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Self::Timeout,
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe => Self::PeerClosed,
            // Never one of the system's: rustls says so of a ClientHello that does not fit its buffer.
            io::ErrorKind::Other => Self::Other,
            _ => Self::Io,
        }
    }

    /// What an error of rustls means.
    pub fn of_tls(error: &Error) -> Self {
        match error {
            Error::NoCertificatesPresented => Self::NoClientCertificate,
            Error::InvalidCertificate(error) => Self::of_certificate(error),
            Error::AlertReceived(alert) => Self::of_alert(*alert),
            Error::PeerIncompatible(problem) => Self::of_peer(problem),
            Error::NoApplicationProtocol => Self::NoCommonAlpn,
            // The only sign of a resolver that has none (rustls 0.23).
            Error::General(text) if text == "no server certificate chain resolved" => {
                Self::NoCertificateForName
            }
            _ => Self::Other,
        }
    }

    /// A short stable word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoClientCertificate => "no_client_certificate",
            Self::UnknownCa => "unknown_ca",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
            Self::BadCertificate => "bad_certificate",
            Self::NoCommonVersion => "no_common_version",
            Self::NoCommonCipher => "no_common_cipher",
            Self::NoCommonAlpn => "no_common_alpn",
            Self::NoCertificateForName => "no_certificate_for_name",
            Self::Timeout => "timeout",
            Self::PeerClosed => "peer_closed",
            Self::Io => "io",
            Self::Other => "other",
        }
    }

    fn of_certificate(error: &CertificateError) -> Self {
        match error {
            CertificateError::UnknownIssuer => Self::UnknownCa,
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Expired,
            CertificateError::Revoked => Self::Revoked,
            _ => Self::BadCertificate,
        }
    }

    fn of_alert(alert: AlertDescription) -> Self {
        match alert {
            AlertDescription::CertificateRequired | AlertDescription::NoCertificate => {
                Self::NoClientCertificate
            }
            AlertDescription::UnknownCA => Self::UnknownCa,
            AlertDescription::CertificateExpired => Self::Expired,
            AlertDescription::CertificateRevoked => Self::Revoked,
            AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateUnknown
            // A signature in the chain does not fit: a CA of the same name with another key.
            | AlertDescription::DecryptError
            | AlertDescription::BadCertificateStatusResponse => Self::BadCertificate,
            AlertDescription::ProtocolVersion | AlertDescription::InappropriateFallback => {
                Self::NoCommonVersion
            }
            AlertDescription::HandshakeFailure | AlertDescription::InsufficientSecurity => {
                Self::NoCommonCipher
            }
            AlertDescription::NoApplicationProtocol => Self::NoCommonAlpn,
            AlertDescription::UnrecognisedName => Self::NoCertificateForName,
            AlertDescription::CloseNotify | AlertDescription::UserCanceled => Self::PeerClosed,
            _ => Self::Other,
        }
    }

    fn of_peer(problem: &PeerIncompatible) -> Self {
        match problem {
            PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
            | PeerIncompatible::SupportedVersionsExtensionRequired
            | PeerIncompatible::Tls12NotOffered
            | PeerIncompatible::Tls12NotOfferedOrEnabled
            | PeerIncompatible::Tls13RequiredForQuic => Self::NoCommonVersion,
            PeerIncompatible::NoCertificateRequestSignatureSchemesInCommon
            | PeerIncompatible::NoCipherSuitesInCommon
            | PeerIncompatible::NoEcPointFormatsInCommon
            | PeerIncompatible::NoKxGroupsInCommon
            | PeerIncompatible::NoSignatureSchemesInCommon => Self::NoCommonCipher,
            _ => Self::Other,
        }
    }
}

impl From<&Error> for HandshakeFailure {
    fn from(error: &Error) -> Self {
        Self::of_tls(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_error_has_its_word() {
        use HandshakeFailure as F;
        let certificate = |error| Error::InvalidCertificate(error);
        let table = [
            (Error::NoCertificatesPresented, F::NoClientCertificate),
            (Error::AlertReceived(AlertDescription::CertificateRequired), F::NoClientCertificate),
            (certificate(CertificateError::UnknownIssuer), F::UnknownCa),
            (Error::AlertReceived(AlertDescription::UnknownCA), F::UnknownCa),
            (certificate(CertificateError::Expired), F::Expired),
            (certificate(CertificateError::Revoked), F::Revoked),
            (certificate(CertificateError::BadSignature), F::BadCertificate),
            (certificate(CertificateError::NotValidYet), F::BadCertificate),
            (PeerIncompatible::Tls12NotOffered.into(), F::NoCommonVersion),
            (PeerIncompatible::NoCipherSuitesInCommon.into(), F::NoCommonCipher),
            (PeerIncompatible::NoSignatureSchemesInCommon.into(), F::NoCommonCipher),
            (Error::NoApplicationProtocol, F::NoCommonAlpn),
            (Error::AlertReceived(AlertDescription::UnrecognisedName), F::NoCertificateForName),
            (Error::AlertReceived(AlertDescription::DecryptError), F::BadCertificate),
            (Error::DecryptError, F::Other),
        ];
        for (error, expected) in table {
            assert_eq!(F::of_tls(&error), expected, "{error}");
            let wrapped = io::Error::new(io::ErrorKind::InvalidData, error);
            assert_eq!(F::of(&wrapped), expected, "{wrapped}");
        }
        let table = [
            (io::ErrorKind::WouldBlock, F::Timeout),
            (io::ErrorKind::UnexpectedEof, F::PeerClosed),
            (io::ErrorKind::ConnectionReset, F::PeerClosed),
            (io::ErrorKind::PermissionDenied, F::Io),
        ];
        for (kind, expected) in table {
            assert_eq!(F::of(&kind.into()), expected, "{kind}");
        }
    }
}
