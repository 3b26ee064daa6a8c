//! A program in which SIGPIPE still ends a process, as C programs have it: a client that leaves must not do that.

use std::env;
use std::io::{ErrorKind, Write as _};
use std::net::{Shutdown, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use rustls_reload::issue::Ca;
use rustls_reload::{Paths, Pending, Reloader, TlsListener};

const CHILD: &str = "SIGPIPE_TEST_CHILD";

#[test]
fn client_that_leaves_does_not_end_the_program() {
    if env::var_os(CHILD).is_some() {
        // SAFETY: no handler, only the default.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        return write_to_nobody();
    }
    let mut again = Command::new(env::current_exe().unwrap());
    let status =
        again.args(["--exact", "client_that_leaves_does_not_end_the_program"]).env(CHILD, "1").status();
    assert!(status.unwrap().success());
}

fn write_to_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let (cert, key) = (dir.path().join("c.crt"), dir.path().join("c.key"));
    let ca = Ca::new("root").unwrap();
    let issued = ca.server(&["localhost"]).issue().unwrap();
    std::fs::write(&cert, issued.chain_pem()).unwrap();
    std::fs::write(&key, issued.key_pem().as_bytes()).unwrap();
    let reloader = Reloader::builder(Paths::new(cert, key)).start().unwrap();
    let listener = TlsListener::bind("127.0.0.1:0", &reloader).unwrap();

    let mut roots = RootCertStore::empty();
    roots.add(ca.cert_der().clone()).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let tls = ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap()).unwrap();
    let mut client = StreamOwned::new(tls, TcpStream::connect(listener.local_addr().unwrap()).unwrap());
    let pending = listener.accept().unwrap().unwrap();
    let server =
        std::thread::Builder::new().spawn(move || pending.handshake(Pending::DEFAULT_LIMIT).unwrap());
    client.write_all(b"!").unwrap();
    let mut server = server.unwrap().join().unwrap();
    client.sock.shutdown(Shutdown::Both).unwrap();
    drop(client);
    let error = loop {
        if let Err(error) = server.write(b"?") {
            break error;
        }
        std::thread::park_timeout(Duration::from_millis(1));
    };
    assert!(matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{error}");
}
