//! TLS for ureq, with the `ClientConfig` of the moment for each connection.
//!
//! ureq's own connector takes certificates and roots, not a `ClientConfig`, and keeps what it made of them for
//! the life of the agent. So the chain of connectors gets a last link of our own, of the same shape.
#![allow(
    clippy::indexing_slicing,
    reason = "as ureq's own transports do: the amount is what it has just written"
)]

use std::fmt;
use std::io::{self, Read as _, Write as _};

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use rustls_reload::Reloader;
use ureq::Error;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport, TransportAdapter,
};

/// The link of the chain that makes TLS of a socket. It refuses what is not HTTPS: no request is to go out in
/// clear text by mistake.
#[derive(Debug)]
pub(crate) struct Reloading {
    reloader: Reloader,
}

impl Reloading {
    pub(crate) fn new(reloader: Reloader) -> Self {
        Self { reloader }
    }
}

impl<In: Transport> Connector<In> for Reloading {
    type Out = Tls;

    fn connect(&self, details: &ConnectionDetails<'_>, chained: Option<In>) -> Result<Option<Tls>, Error> {
        let transport = chained.filter(|_| details.needs_tls()).ok_or(Error::ConnectionFailed)?;
        let host = details.uri.host().ok_or_else(|| Error::BadUri(details.uri.to_string()))?;
        // An IPv6 address stands in brackets there (RFC 3986 §3.2.2).
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())
            .map_err(|error| Error::Io(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
        let config = self.reloader.client_config();
        let config = config.ok_or_else(|| Error::Io(io::Error::other("there is no certificate yet")))?;
        let mut conn =
            ClientConnection::new(config, name).map_err(|error| Error::Io(io::Error::other(error)))?;
        let mut sock = TransportAdapter::new(transport.boxed(), details.current_time.clone());
        sock.set_timeout(details.timeout);
        conn.complete_io(&mut sock)?;
        let buffers =
            LazyBuffers::new(details.config.input_buffer_size(), details.config.output_buffer_size());
        Ok(Some(Tls { buffers, stream: StreamOwned { conn, sock } }))
    }
}

pub(crate) struct Tls {
    buffers: LazyBuffers,
    stream: StreamOwned<ClientConnection, TransportAdapter>,
}

impl Transport for Tls {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream.get_mut().set_timeout(timeout);
        self.stream.write_all(&self.buffers.output()[..amount])?;
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.get_mut().set_timeout(timeout);
        let amount = self.stream.read(self.buffers.input_append_buf())?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.get_mut().get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}
