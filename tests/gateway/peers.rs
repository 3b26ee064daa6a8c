//! Who is on the other sides of the gateway: clients with their certificates, and upstreams.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, DEFAULT_VERSIONS, StreamOwned};
use rustls_reload::issue::{Ca, Issued};

use crate::common::Mount;
use crate::common::tls::trusting;
use crate::process::LIMIT;

/// Who issues for servers, and who for clients.
pub(crate) struct Pki {
    pub(crate) servers: Ca,
    pub(crate) clients: Ca,
}

impl Pki {
    pub(crate) fn new() -> Self {
        Self { servers: Ca::new("servers").unwrap(), clients: Ca::new("clients").unwrap() }
    }

    /// Of a server that trusts our clients.
    pub(crate) fn files(&self) -> Mount {
        let files = Mount::new();
        self.rotate(&files);
        files
    }

    pub(crate) fn rotate(&self, files: &Mount) {
        self.put(files, self.clients.cert_pem());
    }

    pub(crate) fn put(&self, files: &Mount, ca: &str) {
        files.swap_with_ca(&self.servers.server(&["localhost"]).issue().unwrap().into(), ca);
    }

    pub(crate) fn client(&self, name: &str) -> Arc<ClientConfig> {
        self.config(Some(&self.clients.client(name).issue().unwrap()))
    }

    pub(crate) fn config(&self, identity: Option<&Issued>) -> Arc<ClientConfig> {
        let config = trusting(self.servers.cert_der(), DEFAULT_VERSIONS);
        Arc::new(match identity {
            Some(issued) => config.with_client_auth_cert(issued.chain_der(), issued.key_der()).unwrap(),
            None => config.with_no_client_auth(),
        })
    }
}

pub(crate) fn put_identity(files: &Mount, identity: &Issued, ca: &Ca) {
    files.put(&[
        ("tls.crt", &identity.chain_pem()),
        ("tls.key", &identity.key_pem()),
        ("ca.crt", ca.cert_pem()),
    ]);
}

pub(crate) type Client = StreamOwned<ClientConnection, TcpStream>;

pub(crate) fn try_connect(address: SocketAddr, config: &Arc<ClientConfig>) -> io::Result<Client> {
    let socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(LIMIT))?;
    let name = ServerName::try_from("localhost").unwrap();
    let mut client = Client::new(ClientConnection::new(Arc::clone(config), name).unwrap(), socket);
    while client.conn.is_handshaking() {
        client.conn.complete_io(&mut client.sock)?;
    }
    Ok(client)
}

pub(crate) fn connect(address: SocketAddr, config: &Arc<ClientConfig>) -> Client {
    try_connect(address, config).unwrap()
}

/// Some bytes there and back.
pub(crate) fn ping(stream: &mut (impl Read + Write)) -> io::Result<()> {
    stream.write_all(b"hello")?;
    let mut answer = [0; 5];
    stream.read_exact(&mut answer)?;
    assert_eq!(&answer, b"hello");
    Ok(())
}

pub(crate) fn is_open(socket: &TcpStream) -> bool {
    socket.set_nonblocking(true).unwrap();
    let open = matches!(socket.peek(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock);
    socket.set_nonblocking(false).unwrap();
    open
}

/// Sends back what comes; where it listens.
pub(crate) fn echo() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    start(move || {
        for connection in listener.incoming() {
            start(move || echo_on(&connection.unwrap()));
        }
    });
    address.to_string()
}

pub(crate) fn echo_on(mut connection: &TcpStream) {
    connection.set_nodelay(true).unwrap();
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = connection.read(&mut buffer) {
        if connection.write_all(&buffer[..length]).is_err() {
            return;
        }
    }
}

/// The client's part: everything, the end, and then the answer.
pub(crate) fn ask_whole(mut client: Client) {
    send_whole(&mut client, MIB);
    client.conn.send_close_notify();
    client.flush().unwrap();
    assert_eq!(read_whole(&mut client), MIB);
}

/// The upstream's part.
pub(crate) fn answer_after_end(stream: &mut (impl Read + Write)) {
    assert_eq!(read_whole(stream), MIB);
    send_whole(stream, MIB);
}

/// Bytes that tell their place.
pub(crate) fn send_whole(stream: &mut impl Write, length: usize) {
    let bytes: Vec<u8> = (0..length).map(byte_at).collect();
    stream.write_all(&bytes).unwrap();
    stream.flush().unwrap();
}

/// How many came until the announced end, all of them right.
pub(crate) fn read_whole(stream: &mut impl Read) -> usize {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("an end that was announced");
    assert!(bytes.iter().enumerate().all(|(place, byte)| *byte == byte_at(place)), "in order");
    bytes.len()
}

pub(crate) fn byte_at(place: usize) -> u8 {
    u8::try_from(place % 251).unwrap()
}

/// A thread with a small stack: there may be thousands.
pub(crate) fn start<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    thread::Builder::new().stack_size(256 * 1024).spawn(run).unwrap()
}

pub(crate) const MIB: usize = 1024 * 1024;
