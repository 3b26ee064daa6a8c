//! What a stream does at its ends: at the deadline, when it is cut, when the other side is slow, rude or gone.

#![expect(clippy::unwrap_used, reason = "test code outside of test functions")]

mod common;

use std::io::{ErrorKind, IoSlice, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use common::tls::client_config;
use common::{Mount, Pki, SOON};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use rustls_reload::metrics::HandshakeFailure;
use rustls_reload::{Drain, Reloader, TlsListener, TlsStream};

type Client = StreamOwned<ClientConnection, TcpStream>;

/// A listener, and both ends of its connections.
struct Rig {
    reloader: Reloader,
    listener: TlsListener,
    pki: Pki,
    mount: Mount,
}

impl Rig {
    fn new() -> Self {
        let pki = Pki::new();
        let mount = Mount::with(&pki.pair(1));
        let reloader = Reloader::builder(mount.paths()).start().unwrap();
        let listener = TlsListener::bind("127.0.0.1:0", &reloader).unwrap();
        Self { reloader, listener, pki, mount }
    }

    fn config(&self) -> Arc<ClientConfig> {
        client_config(self.pki.root().cert_der())
    }

    /// A client that has said nothing, and the server's side of it.
    fn connecting(&self, config: Arc<ClientConfig>) -> (Client, JoinHandle<TlsStream>) {
        let socket = TcpStream::connect(self.listener.local_addr().unwrap()).unwrap();
        socket.set_read_timeout(Some(SOON)).unwrap();
        socket.set_nodelay(true).unwrap();
        let tls = ClientConnection::new(config, ServerName::try_from("localhost").unwrap()).unwrap();
        let pending = self.listener.accept().unwrap().unwrap();
        (StreamOwned::new(tls, socket), run(move || pending.handshake(SOON).unwrap()))
    }

    /// Both ends, after the handshake.
    fn pair(&self) -> (Client, TlsStream) {
        self.pair_with(self.config())
    }

    fn pair_with(&self, config: Arc<ClientConfig>) -> (Client, TlsStream) {
        let (mut client, server) = self.connecting(config);
        while client.conn.is_handshaking() {
            client.conn.complete_io(&mut client.sock).unwrap();
        }
        (client, server.join().unwrap())
    }
}

fn run<T: Send + 'static>(what: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    Builder::new().spawn(what).unwrap()
}

#[test]
fn cut_connection_delivers_nothing_that_has_arrived() {
    let rig = Rig::new();
    let (mut client, mut server) = rig.pair();
    for request in 0..100 {
        client.write_all(&[request; 1000]).unwrap();
    }
    let mut request = [0; 1000];
    server.read_exact(&mut request).unwrap();
    let drained = rig.reloader.connections().drain(Drain::All, Duration::ZERO);
    assert_eq!(drained.cut.len(), 1);
    // Else a client whose trust was withdrawn would go on having its requests served.
    assert_eq!(server.read(&mut request).unwrap_err().kind(), ErrorKind::ConnectionAborted);
    assert_eq!(server.write(b"answer").unwrap_err().kind(), ErrorKind::ConnectionAborted);
    assert_eq!(server.close(SOON).unwrap_err().kind(), ErrorKind::ConnectionAborted);
}

#[test]
fn handshake_under_way_on_an_old_generation_begins_as_asked_to_end() {
    let rig = Rig::new();
    let (mut client, server) = rig.connecting(rig.config());
    client.conn.write_tls(&mut client.sock).unwrap();
    while client.conn.is_handshaking() {
        client.conn.read_tls(&mut client.sock).unwrap();
        client.conn.process_new_packets().unwrap();
    }
    rig.mount.swap(&rig.pki.pair(2));
    rig.reloader.wait_for(2, SOON).unwrap();
    assert_eq!(rig.reloader.connections().drain(Drain::Stale, Duration::ZERO).cut.len(), 0);
    client.write_all(b"!").unwrap();
    let server = server.join().unwrap();
    assert!(server.is_stale() && server.is_draining());
    assert!(!rig.pair().1.is_draining(), "a new one is none of it");
}

#[test]
fn nothing_is_open_after_a_drain_that_cut_nothing() {
    let rig = Rig::new();
    for _ in 0..200 {
        let mut threads = Vec::new();
        for _ in 0..4 {
            let client = TcpStream::connect(rig.listener.local_addr().unwrap()).unwrap();
            let pending = rig.listener.accept().unwrap().unwrap();
            threads.push(run(move || drop((pending, client))));
        }
        let drained = rig.reloader.connections().drain(Drain::All, SOON);
        assert_eq!((drained.cut.len(), rig.reloader.connections().len()), (0, 0));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

#[test]
fn close_waits_for_a_client_that_is_still_sending() {
    let rig = Rig::new();
    let (mut client, mut server) = rig.pair();
    // An upload that is answered before it is through: a reset would overtake the answer.
    let upload = run(move || {
        client.write_all(&vec![7; 4 << 20]).unwrap();
        client.conn.send_close_notify();
        client.flush().unwrap();
        let mut answer = [0; 3];
        client.read_exact(&mut answer).map(|()| answer)
    });
    server.read_exact(&mut [0; 100]).unwrap();
    server.write_all(b"413").unwrap();
    server.close(SOON).unwrap();
    assert_eq!(&upload.join().unwrap().unwrap(), b"413");
}

#[test]
fn deadline_ends_reading_and_writing_and_closing() {
    let rig = Rig::new();
    let (_client, mut server) = rig.pair();
    let limit = Duration::from_millis(100);
    let began = Instant::now();
    server.set_deadline(Some(began + limit));
    assert_eq!(server.read(&mut [0]).unwrap_err().kind(), ErrorKind::TimedOut);
    assert!(began.elapsed() >= limit);
    server.set_deadline(Some(Instant::now() + limit));
    assert_eq!(server.write_all(&vec![0; 32 << 20]).unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(server.close(limit).unwrap_err().kind(), ErrorKind::TimedOut);
    // What comes without end is no reason to go on either.
    let (mut client, mut server) = rig.pair();
    let endless = run(move || while client.write_all(&[0; 16_384]).is_ok() {});
    server.set_deadline(Some(Instant::now() + limit));
    assert_eq!(server.read_to_end(&mut Vec::new()).unwrap_err().kind(), ErrorKind::TimedOut);
    drop(server);
    endless.join().unwrap();
}

#[test]
fn records_without_content_hold_nobody_beyond_the_deadline() {
    let rig = Rig::new();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(rig.pki.root().cert_der().clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(hollow::provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let (mut client, mut server) = rig.pair_with(Arc::new(config));
    // rustls limits rows of empty records and of key updates; each of them ends a row of the other.
    let mut flood = Vec::new();
    for _ in 0..200_000 {
        client.conn.refresh_traffic_keys().unwrap();
        client.conn.writer().write_all(b"e").unwrap();
        while client.conn.wants_write() {
            client.conn.write_tls(&mut flood).unwrap();
        }
    }
    let mut answers = client.sock.try_clone().unwrap();
    let read = run(move || while matches!(answers.read(&mut [0; 65_536]), Ok(1..)) {});
    let length = flood.len();
    let write = run(move || client.sock.write_all(&flood).is_ok());
    server.set_nonblocking();
    let mut looks = 0;
    while server.read(&mut [0]).unwrap_err().kind() == ErrorKind::WouldBlock && looks < 20 {
        looks += 1;
        let mut fds = [PollFd::new(&server, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 5, tv_nsec: 0 })).unwrap();
    }
    assert_eq!(looks, 20, "returns again and again, in the middle of {length} bytes of nothing");
    server.set_deadline(Some(Instant::now() + Duration::from_millis(50)));
    assert_eq!(server.read(&mut [0]).unwrap_err().kind(), ErrorKind::TimedOut);
    drop(server);
    assert!(!write.join().unwrap(), "it was not all taken");
    read.join().unwrap();
}

/// A provider whose records of one byte are empty.
mod hollow {
    use rustls::crypto::cipher::{
        AeadKey, Iv, MessageDecrypter, MessageEncrypter, OutboundChunks, OutboundOpaqueMessage,
        OutboundPlainMessage, Tls13AeadAlgorithm, UnsupportedOperationError,
    };
    use rustls::crypto::{CipherSuiteCommon, CryptoProvider};
    use rustls::{ConnectionTrafficSecrets, ContentType, Error, SupportedCipherSuite, Tls13CipherSuite};

    struct Aead(&'static dyn Tls13AeadAlgorithm);

    impl Tls13AeadAlgorithm for Aead {
        fn encrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageEncrypter> {
            Box::new(Encrypter(self.0.encrypter(key, iv)))
        }

        fn decrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageDecrypter> {
            self.0.decrypter(key, iv)
        }

        fn key_len(&self) -> usize {
            self.0.key_len()
        }

        fn extract_keys(
            &self,
            key: AeadKey,
            iv: Iv,
        ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
            self.0.extract_keys(key, iv)
        }
    }

    struct Encrypter(Box<dyn MessageEncrypter>);

    impl MessageEncrypter for Encrypter {
        fn encrypt(
            &mut self,
            mut message: OutboundPlainMessage<'_>,
            sequence: u64,
        ) -> Result<OutboundOpaqueMessage, Error> {
            if message.typ == ContentType::ApplicationData && message.payload.len() == 1 {
                message.payload = OutboundChunks::new_empty();
            }
            self.0.encrypt(message, sequence)
        }

        fn encrypted_payload_len(&self, length: usize) -> usize {
            self.0.encrypted_payload_len(length)
        }
    }

    pub(super) fn provider() -> CryptoProvider {
        let mut provider = CryptoProvider::clone(&super::common::provider());
        let suite = provider.cipher_suites.iter().find_map(|suite| suite.tls13()).unwrap();
        let common = CipherSuiteCommon { confidentiality_limit: u64::MAX, ..copy(&suite.common) };
        let hollow = Tls13CipherSuite {
            common,
            hkdf_provider: suite.hkdf_provider,
            aead_alg: Box::leak(Box::new(Aead(suite.aead_alg))),
            quic: None,
        };
        provider.cipher_suites = vec![SupportedCipherSuite::Tls13(Box::leak(Box::new(hollow)))];
        provider
    }

    fn copy(common: &CipherSuiteCommon) -> CipherSuiteCommon {
        CipherSuiteCommon {
            suite: common.suite,
            hash_provider: common.hash_provider,
            confidentiality_limit: common.confidentiality_limit,
        }
    }
}

#[test]
fn relay_that_does_not_block_loses_nothing_and_never_writes_nothing() {
    const TOTAL: usize = 16 << 20;
    const MOST: usize = 100_000;
    let rig = Rig::new();
    let (mut client, mut server) = rig.pair();
    client.sock.set_nonblocking(true).unwrap();
    let both_ways = run(move || {
        let (mut sent, mut received) = (0, 0);
        let (out, mut back) = (vec![5; 30_000], vec![0; 30_000]);
        let blocked = |error: std::io::Error| assert_eq!(error.kind(), ErrorKind::WouldBlock);
        while received < TOTAL {
            let before = (sent, received);
            if sent < TOTAL {
                let length = out.len().min(TOTAL - sent);
                client.write(&out[..length]).map_or_else(blocked, |length| sent += length);
            } else {
                client.flush().map_or_else(blocked, |()| ());
            }
            client.read(&mut back).map_or_else(blocked, |length| received += length);
            if (sent, received) == before {
                std::thread::park_timeout(Duration::from_micros(200));
            }
        }
    });
    server.set_nonblocking();
    let (mut waiting, mut chunk, mut echoed) = (Vec::new(), vec![0; 20_000], 0);
    while echoed < TOTAL || server.wants_write() {
        let before = (waiting.len(), echoed);
        if waiting.len() < MOST {
            match server.read(&mut chunk) {
                Ok(length) => waiting.extend(&chunk[..length]),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        if !waiting.is_empty() {
            match server.write(&waiting) {
                Ok(length) => {
                    assert_ne!(length, 0, "`write_all` would take it for the end");
                    echoed += length;
                    waiting.drain(..length);
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        } else if server.wants_write() {
            server.flush().ok();
        }
        if (waiting.len(), echoed) == before {
            let room = if waiting.len() < MOST { PollFlags::IN } else { PollFlags::empty() };
            let work = server.wants_write() || !waiting.is_empty();
            let wanted = if work { room | PollFlags::OUT } else { room };
            let mut fds = [PollFd::new(&server, wanted)];
            let ready = poll(&mut fds, Some(&Timespec { tv_sec: 5, tv_nsec: 0 })).unwrap();
            assert_ne!(ready, 0, "stuck: {echoed} echoed, {} waiting", waiting.len());
        }
    }
    both_ways.join().unwrap();
}

#[test]
fn ends_are_told_apart() {
    let rig = Rig::new();
    // One side has said its last word, and still listens.
    let (mut client, mut server) = rig.pair();
    client.conn.send_close_notify();
    client.flush().unwrap();
    assert_eq!(server.read(&mut [0]).unwrap(), 0);
    assert_eq!(server.read(&mut [0]).unwrap(), 0, "and again");
    let receive = run(move || client.read_to_end(&mut Vec::new()).unwrap());
    assert_eq!(
        server.write_vectored(&[IoSlice::new(b""), IoSlice::new(b"ab"), IoSlice::new(b"c")]).unwrap(),
        3
    );
    server.write_all(&vec![3; 200_000]).unwrap();
    server.close(SOON).unwrap();
    assert_eq!(receive.join().unwrap(), 200_003);
    // It is gone without a word.
    let (client, mut server) = rig.pair();
    drop(client);
    let error = server.read(&mut [0]).unwrap_err().kind();
    assert!(matches!(error, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset), "{error}");
}

#[test]
fn reason_of_a_failure_survives_the_question_mark() {
    let rig = Rig::new();
    let socket = TcpStream::connect(rig.listener.local_addr().unwrap()).unwrap();
    let pending = rig.listener.accept().unwrap().unwrap();
    drop(socket);
    let error = pending.handshake(SOON).unwrap_err();
    assert_eq!(error.failure(), HandshakeFailure::PeerClosed);
    assert_eq!(HandshakeFailure::of(&error.into()), HandshakeFailure::PeerClosed);
}

#[test]
fn what_was_handed_out_outlives_its_reloader() {
    let rig = Rig::new();
    let connections = rig.reloader.connections().clone();
    let (mut client, server) = rig.connecting(rig.config());
    drop(rig);
    client.write_all(b"!").unwrap();
    let mut server = server.join().unwrap();
    server.read_exact(&mut [0]).unwrap();
    assert_eq!(connections.len(), 1);
    drop(server);
    assert!(connections.wait_idle(SOON));
}
