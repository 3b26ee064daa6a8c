//! WebSockets (tungstenite, blocking) on `rustls::StreamOwned`.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "test code outside of test functions")]

mod common;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use common::{Mount, Pki, SOON, client_config, connect, leaf_of, serves};
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection, StreamOwned};
use rustls_reload::Reloader;
use tungstenite::{Message, WebSocket};

#[test]
fn web_socket_lives_through_rotations_and_a_new_one_has_the_new_certificate() {
    let pki = Pki::new();
    let first = pki.server(1);
    let mount = Mount::with(&first);
    let reloader = Reloader::builder(mount.paths()).alpn(["http/1.1"]).start().unwrap();
    let address = serve(reloader.clone());
    let config = Arc::new(client_config(pki.root.cert_der(), &["http/1.1"]));

    let mut kept = open(address, &config);
    assert_eq!(leaf_of(&kept.get_ref().conn), first.leaf);
    for serial in 2..=6 {
        let pair = pki.server(serial);
        mount.swap(&pair);
        serves(&reloader, &pair);
        let mut fresh = open(address, &config);
        assert_eq!(leaf_of(&fresh.get_ref().conn), pair.leaf, "the new one");
        echoes(&mut fresh, "fresh");
        echoes(&mut kept, &format!("kept over rotation {serial}"));
    }
    assert_eq!(leaf_of(&kept.get_ref().conn), first.leaf, "the old one");
    kept.close(None).unwrap();
    // To the end of the closing handshake (RFC 6455 §7.1.1): the other side is there still.
    while let Ok(message) = kept.read() {
        assert!(message.is_close(), "{message}");
    }
}

fn echoes(socket: &mut WebSocket<StreamOwned<ClientConnection, TcpStream>>, text: &str) {
    socket.send(Message::text(text)).unwrap();
    assert_eq!(socket.read().unwrap(), Message::text(text));
}

fn open(
    address: SocketAddr,
    config: &Arc<ClientConfig>,
) -> WebSocket<StreamOwned<ClientConnection, TcpStream>> {
    let (socket, _) = tungstenite::client("wss://localhost/", connect(address, config)).expect("an upgrade");
    socket
}

/// A thread a connection, each with the config of the moment.
fn serve(reloader: Reloader) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let accept = move || {
        for connection in listener.incoming() {
            let (connection, config) = (connection.unwrap(), reloader.server_config());
            thread::Builder::new()
                .name("web socket".into())
                .spawn(|| echo(connection, config))
                .map(drop)
                .unwrap();
        }
    };
    thread::Builder::new().name("accept".into()).spawn(accept).map(drop).unwrap();
    address
}

fn echo(connection: TcpStream, config: Arc<ServerConfig>) {
    connection.set_nodelay(true).unwrap();
    connection.set_read_timeout(Some(SOON)).unwrap();
    let tls = StreamOwned::new(ServerConnection::new(config).unwrap(), connection);
    let mut socket = tungstenite::accept(tls).expect("an upgrade");
    // An error is the end: the client has gone, as it may.
    while let Ok(message) = socket.read() {
        if message.is_text() && socket.send(message).is_err() {
            return;
        }
    }
}
