//! Clients of every kind shake hands before a rotation, and after it get the new certificate.
//!
//! A client that is not installed is said to be, and left out.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "test code outside of test functions")]

mod common;

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::tls::serve;
use common::{Mount, Pki, SOON, serves};
use rustls_reload::{Reloader, TlsListener, TlsStream};

#[test]
fn every_client_sees_the_rotation() {
    let pki = Pki::new();
    let mount = Mount::with(&pki.pair(0x41));
    let reloader = Reloader::builder(mount.paths()).alpn(["http/1.1"]).start().unwrap();
    let listener = TlsListener::bind("127.0.0.1:0", &reloader).unwrap();
    let port = listener.local_addr().unwrap().port();
    serve(&listener, SOON, answer);
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root.pem");
    fs::write(&root, pki.root().cert_pem()).unwrap();

    let installed = |client: &&Client| {
        let there = is_installed(client.program);
        if !there {
            eprintln!("left out: {} is not installed", client.program);
        }
        there
    };
    let clients: Vec<_> = CLIENTS.iter().filter(installed).collect();
    assert!(!clients.is_empty(), "no client at all");
    for serial in [0x41, 0x42] {
        if serial == 0x42 {
            mount.swap(&pki.pair(serial));
            serves(&reloader, serial);
        }
        for client in &clients {
            let output = client.run(port, &root, dir.path());
            let said = String::from_utf8_lossy(&output.stdout);
            let complaint = String::from_utf8_lossy(&output.stderr);
            let wanted = format!("serial {serial:x} served");
            assert!(said.contains(&wanted), "{}: {said}\n{complaint}", client.program);
        }
    }
}

/// Somebody else's client.
struct Client {
    program: &'static str,
    /// `PORT`, `ROOT` and `HOME` stand for what they say.
    args: &'static [&'static str],
    /// What it is given to say; else it speaks HTTP by itself.
    says: &'static str,
}

const REQUEST: &str = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// All verify the chain, but Chromium, which has no option for a root of one's own.
const CLIENTS: &[Client] = &[
    Client {
        program: "openssl",
        args: &[
            "s_client",
            "-connect",
            "127.0.0.1:PORT",
            "-servername",
            "localhost",
            "-verify_hostname",
            "localhost",
            "-CAfile",
            "ROOT",
            "-verify_return_error",
            "-quiet",
        ],
        says: REQUEST,
    },
    Client {
        program: "gnutls-cli",
        args: &["--x509cafile", "ROOT", "--port", "PORT", "localhost"],
        says: REQUEST,
    },
    Client { program: "curl", args: &["--silent", "--show-error", "--cacert", "ROOT", URL], says: "" },
    Client {
        program: "python3",
        args: &[
            "-c",
            "import ssl, sys, urllib.request as r\n\
             context = ssl.create_default_context(cafile=sys.argv[2])\n\
             print(r.urlopen(sys.argv[1], context=context).read().decode())",
            URL,
            "ROOT",
        ],
        says: "",
    },
    Client {
        program: "chromium",
        args: &[
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--user-data-dir=HOME/chromium",
            "--ignore-certificate-errors",
            "--dump-dom",
            URL,
        ],
        says: "",
    },
];

const URL: &str = "https://localhost:PORT/";

impl Client {
    fn run(&self, port: u16, root: &Path, home: &Path) -> Output {
        let fill = |arg: &&str| {
            let arg = arg.replace("PORT", &port.to_string());
            arg.replace("ROOT", root.to_str().unwrap()).replace("HOME", home.to_str().unwrap())
        };
        let mut command = Command::new("timeout");
        command.args(["60", self.program]).args(self.args.iter().map(fill)).env("HOME", home);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut client = command.spawn().unwrap();
        let mut input = client.stdin.take().unwrap();
        input.write_all(self.says.as_bytes()).unwrap();
        // The end of their input would end some before the answer is there.
        let output = client.wait_with_output().unwrap();
        drop(input);
        output
    }
}

fn is_installed(program: &str) -> bool {
    let paths = std::env::var_os("PATH").expect("a search path");
    std::env::split_paths(&paths).any(|dir| dir.join(program).is_file())
}

fn answer(mut tls: TlsStream) -> io::Result<()> {
    let mut request: Vec<u8> = Vec::new();
    let mut chunk = [0; 1024];
    while !request.windows(4).any(|window| window == b"\r\n\r\n") {
        match tls.read(&mut chunk)? {
            0 => return Ok(()),
            length => request.extend(chunk.iter().take(length)),
        }
    }
    let body = format!("serial {} served\n", tls.leaf().serial());
    let length = body.len();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    tls.write_all((head + &body).as_bytes())?;
    tls.close(SOON)
}
