//! QUIC (quinn): a long stream over many rotations, in each of the three ways to have a config.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "test code outside of test functions"
)]

mod common;

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Instant;

use common::{Mount, Pki, SOON, client_config, provider, serves};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{Connection, Endpoint, EndpointConfig, Incoming, TokioRuntime, TransportConfig, VarInt};
use rustls::pki_types::CertificateDer;
use rustls_reload::Reloader;
use sha2::{Digest as _, Sha256};

const ALPN: &str = "interop";
const ROTATIONS: u64 = 20;
const LENGTH: usize = 100_000_000;
/// Between two rotations. What a client has not read holds the server up, so the stream is never far ahead.
const STEP: usize = LENGTH / 21;
/// How far the server may be ahead.
const WINDOW: u32 = 1 << 20;

/// Where an incoming connection has its config from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// One config for good, with the reloader's resolver.
    Resolver,
    /// The endpoint is given the config of each generation.
    OnSwap,
    /// Each connection is accepted with the config of the moment.
    PerIncoming,
}

#[test]
fn stream_of_100_mb_spans_20_rotations_with_the_resolver() {
    spans_rotations(Way::Resolver);
}

#[test]
fn stream_of_100_mb_spans_20_rotations_with_a_config_set_on_each_swap() {
    spans_rotations(Way::OnSwap);
}

#[test]
fn stream_of_100_mb_spans_20_rotations_with_a_config_for_each_connection() {
    spans_rotations(Way::PerIncoming);
}

/// Reads a part, rotates, opens a new connection, reads on. In the end all bytes are what was sent, and the
/// first connection has the first certificate still.
fn spans_rotations(way: Way) {
    let pki = Pki::new();
    let first = pki.server(1);
    let mount = Mount::with(&first);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let (reloader, address) = serve(&mount, way);
        let client = client(&pki);
        let begun = Instant::now();
        let long = connect(&client, address).await;
        assert_eq!(leaf_of(&long), first.leaf);
        let (mut send, mut stream) = long.open_bi().await.unwrap();
        send.write_all(&u64::try_from(LENGTH).unwrap().to_be_bytes()).await.unwrap();

        let (mut hash, mut received, mut rotations) = (Sha256::new(), 0, 0);
        let mut buffer = vec![0; 64 * 1_024];
        while let Some(length) = soon(stream.read(&mut buffer)).await.expect("the stream goes on") {
            hash.update(&buffer[..length]);
            received += length;
            if rotations < ROTATIONS && received > STEP * usize::try_from(rotations + 1).unwrap() {
                rotations += 1;
                let pair = pki.server(rotations + 1);
                mount.swap(&pair);
                serves(&reloader, &pair);
                sees(&client, address, &pair.leaf, way).await;
            }
        }
        let took = begun.elapsed();
        assert_eq!((received, rotations), (LENGTH, ROTATIONS));
        assert_eq!(<[u8; 32]>::from(hash.finalize()), hash_of(LENGTH), "not a byte is lost or changed");
        assert_eq!(leaf_of(&long), first.leaf, "the connection keeps its certificate");
        assert!(reloader.current().unwrap().number() > ROTATIONS);
        let lost = long.stats().path.lost_packets;
        println!("{received} bytes over {rotations} rotations in {took:.1?}; packets sent again: {lost}");
    });
}

/// A new connection has this certificate: at once, or where a callback sets the config, as soon as it has run.
async fn sees(client: &Endpoint, address: SocketAddr, leaf: &CertificateDer<'static>, way: Way) {
    let deadline = Instant::now() + SOON;
    loop {
        let connection = connect(client, address).await;
        if leaf_of(&connection) == *leaf {
            // It works, too.
            let (mut send, mut stream) = connection.open_bi().await.unwrap();
            send.write_all(&1_000_u64.to_be_bytes()).await.unwrap();
            let bytes = soon(stream.read_to_end(LENGTH)).await.unwrap();
            assert_eq!(<[u8; 32]>::from(Sha256::digest(&bytes)), hash_of(1_000));
            return;
        }
        assert!(way == Way::OnSwap && Instant::now() < deadline, "an older certificate");
    }
}

fn serve(mount: &Mount, way: Way) -> (Reloader, SocketAddr) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = socket.local_addr().unwrap();
    // Without a config it accepts nothing yet: what a swap is to set has to be there before the reloader.
    let endpoint = Endpoint::new(EndpointConfig::default(), None, socket, Arc::new(TokioRuntime)).unwrap();
    // TLS 1.3 alone is what QUIC has; of a config that allows 1.2 as well, quinn takes that.
    let mut builder = Reloader::builder(mount.paths()).provider(provider()).alpn([ALPN]);
    if way == Way::OnSwap {
        let endpoint = endpoint.clone();
        builder = builder.on_swap(move |swap| {
            endpoint.set_server_config(Some(config(swap.generation().server_config())));
        });
    }
    let reloader = builder.start().unwrap();
    let first = match way {
        Way::Resolver => {
            let mut config = rustls::ServerConfig::builder_with_provider(provider())
                .with_protocol_versions(&[&rustls::version::TLS13])
                .unwrap()
                .with_no_client_auth()
                .with_cert_resolver(reloader.resolver());
            config.alpn_protocols = vec![ALPN.into()];
            Arc::new(config)
        }
        // No swap can come between: the test makes the first one later.
        Way::OnSwap | Way::PerIncoming => reloader.server_config(),
    };
    let base = config(first);
    endpoint.set_server_config(Some(base.clone()));
    let configs = reloader.clone();
    tokio::spawn(async move {
        while let Some(incoming) = endpoint.accept().await {
            let fresh = (way == Way::PerIncoming).then(|| {
                // A copy of the first: it keeps the key of the tokens that clients have from us.
                let mut fresh = base.clone();
                fresh.crypto = Arc::new(QuicServerConfig::try_from(configs.server_config()).unwrap());
                Arc::new(fresh)
            });
            tokio::spawn(answer(incoming, fresh));
        }
    });
    (reloader, address)
}

fn config(tls: Arc<rustls::ServerConfig>) -> quinn::ServerConfig {
    quinn::ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls).unwrap()))
}

/// On each stream: a length comes, so many bytes go.
async fn answer(incoming: Incoming, config: Option<Arc<quinn::ServerConfig>>) {
    let connecting = match config {
        Some(config) => incoming.accept_with(config),
        None => incoming.accept(),
    };
    let connection = connecting.unwrap().await.expect("the handshake goes through");
    while let Ok((mut send, mut receive)) = connection.accept_bi().await {
        let mut length = [0; 8];
        receive.read_exact(&mut length).await.unwrap();
        for piece in pieces(u64::from_be_bytes(length).try_into().unwrap()) {
            // A client that is gone has failed its test, and says why.
            if send.write_all(&piece).await.is_err() {
                return;
            }
        }
        send.finish().ok();
    }
}

fn client(pki: &Pki) -> Endpoint {
    let mut endpoint = Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let mut transport = TransportConfig::default();
    transport.stream_receive_window(VarInt::from_u32(WINDOW));
    transport.max_idle_timeout(Some(SOON.try_into().unwrap()));
    let tls = QuicClientConfig::try_from(client_config(pki.root.cert_der(), &[ALPN])).unwrap();
    let mut config = quinn::ClientConfig::new(Arc::new(tls));
    config.transport_config(Arc::new(transport));
    endpoint.set_default_client_config(config);
    endpoint
}

async fn connect(client: &Endpoint, address: SocketAddr) -> Connection {
    soon(client.connect(address, "localhost").unwrap()).await.expect("a connection")
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, what).await.expect("in time")
}

fn leaf_of(connection: &Connection) -> CertificateDer<'static> {
    let identity = connection.peer_identity().expect("a certificate");
    identity.downcast::<Vec<CertificateDer<'static>>>().expect("by rustls").remove(0)
}

/// Bytes of which no two pieces are equal, so that one in another's place would be found.
fn pieces(length: usize) -> impl Iterator<Item = Vec<u8>> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let noise = std::iter::repeat_with(|| {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    let block: Vec<u8> = noise.take(8 * 1_024).flatten().collect();
    (0..length).step_by(block.len()).map(move |begin| {
        let mut piece = block.clone();
        piece[..8].copy_from_slice(&begin.to_be_bytes());
        piece.truncate(length - begin);
        piece
    })
}

fn hash_of(length: usize) -> [u8; 32] {
    let mut hash = Sha256::new();
    for piece in pieces(length) {
        hash.update(piece);
    }
    hash.finalize().into()
}
