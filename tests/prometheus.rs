//! A real Prometheus looks at the example: its queries and its alerts say what is the case.
//!
//! Needs `prometheus` and `promtool`, in `PATH` or unpacked in `target/prometheus` (`.ci/run` does that), and the
//! example, which `cargo test` builds along. Says what it misses, where it misses something.
#![cfg(feature = "prometheus")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "test code outside of test functions, which reads small files and says what it skips"
)]

mod common;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{Mount, Pki, eventually};

#[test]
fn prometheus_tells_days_left_and_a_reload_that_fails() {
    let (Some(prometheus), Some(example)) = (tool("prometheus"), example()) else {
        return;
    };
    let pki = Pki::new();
    let mount = Mount::with(&pki.lasting(1, 10 * DAY));
    let (_server, admin) = Running::example(&example, &mount.path());
    let home = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    // The rules for operators, on the scale of a test.
    let rules = read(&manifest().join("alerts.yaml"));
    let rules = rules.replace("for: 1m", "for: 1s").replace("[5m]", "[6s]");
    fs::write(home.path().join("alerts.yaml"), rules).unwrap();
    fs::write(home.path().join("prometheus.yaml"), config(&admin)).unwrap();
    let _prometheus = Running::prometheus(&prometheus, home.path(), port);
    let ask = |query: &str| value(&get(port, &format!("/api/v1/query?query={}", escaped(query))));
    let firing = || {
        let alerts = get(port, "/api/v1/alerts");
        let alerts = alerts.split("\"alertname\":\"").skip(1).filter(|alert| alert.contains("\"firing\""));
        alerts.map(|alert| alert.split('"').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let reloads = r#"sum(tls_reload_attempts_total{trigger="event",result="swapped"})"#;
    eventually(LIMIT, "the first scrape", || ask(reloads) == Some(0.0));

    for next in 2..=51 {
        let days = if next == 51 { 40 } else { 10 };
        mount.swap(&pki.lasting(next, days * DAY));
        std::thread::park_timeout(Duration::from_millis(150));
    }
    eventually(LIMIT, "50 rotations are seen", || ask("tls_reload_generation") == Some(51.0));
    assert_eq!(ask(reloads), Some(50.0));
    assert_eq!(ask(r#"sum(tls_reload_attempts_total{result="failed"})"#), Some(0.0));
    let days = ask(r#"(tls_cert_not_after_timestamp_seconds{kind="leaf"} - time()) / 86400"#).unwrap();
    assert!((39.99..=40.0).contains(&days), "{days} days left");
    let series = ask(r#"count({identity="https"})"#).unwrap();
    let scraped = ask(r#"scrape_samples_scraped{job="example"}"#).unwrap();
    assert!((series - scraped).abs() < 0.5, "{series} series, {scraped} a scrape: none was left behind");
    assert_eq!(firing(), Vec::<String>::new());

    mount.put(&[("tls.crt", &pki.pair(52).chain), ("tls.key", &pki.pair(53).key)]);
    eventually(LIMIT, "the alert", || firing() == ["TlsReloadFailing"]);
    let by_reason = r#"tls_reload_failures_total{reason="key_mismatch"}"#;
    assert!(ask(by_reason).unwrap() >= 1.0);
    let still = ask(r#"(tls_cert_not_after_timestamp_seconds{kind="leaf"} - time()) / 86400"#).unwrap();
    assert!((39.99..=40.0).contains(&still), "{still} days left: a failed reload leaves it");
    mount.swap(&pki.lasting(54, 30 * DAY));
    eventually(LIMIT, "the alert ends", || firing().is_empty());
    assert_eq!(ask("tls_reload_healthy"), Some(1.0));
}

#[test]
fn alert_rules_do_what_their_tests_say() {
    let Some(promtool) = tool("promtool") else {
        return;
    };
    run(Command::new(&promtool).args(["check", "rules"]).arg(manifest().join("alerts.yaml")));
    run(Command::new(&promtool).args(["test", "rules"]).arg(manifest().join("alerts_test.yaml")));
}

#[test]
fn names_and_help_are_as_prometheus_wants_them() {
    let (Some(promtool), Some(example)) = (tool("promtool"), example()) else {
        return;
    };
    let mount = Mount::with(&Pki::new().pair(1));
    let (_server, admin) = Running::example(&example, &mount.path());
    let port = admin.rsplit_once(':').unwrap().1.parse().unwrap();
    let mut check = Command::new(promtool);
    check.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = check.spawn().unwrap();
    child.stdin.take().unwrap().write_all(get(port, "/metrics").as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
}

/// A process that ends with the test.
struct Running(Child);

impl Running {
    /// The example, and where its admin port is.
    fn example(path: &Path, secret: &Path) -> (Self, String) {
        let mut command = Command::new(path);
        command.arg("--secret").arg(secret).args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
        let mut running = Self(command.stderr(Stdio::piped()).spawn().unwrap());
        let mut lines = BufReader::new(running.0.stderr.take().unwrap()).lines().map_while(Result::ok);
        let admin =
            lines.find_map(|line| line.split_once("admin port on http://").map(|(_, at)| at.to_owned()));
        // Nobody reads on: the log goes to a closed pipe, and the example goes on all the same.
        (running, admin.unwrap())
    }

    fn prometheus(path: &Path, home: &Path, port: u16) -> Self {
        let mut command = Command::new(path);
        command.arg(format!("--config.file={}", home.join("prometheus.yaml").display()));
        command.arg(format!("--storage.tsdb.path={}", home.join("data").display()));
        command.arg(format!("--web.listen-address=127.0.0.1:{port}")).arg("--log.level=error");
        Self(command.stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn config(admin: &str) -> String {
    format!(
        "global: {{ scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms }}\n\
         rule_files: [ alerts.yaml ]\n\
         scrape_configs:\n  - job_name: example\n    static_configs: [ {{ targets: [ '{admin}' ] }} ]\n"
    )
}

/// A binary of this name, if there is one.
fn tool(name: &str) -> Option<PathBuf> {
    let unpacked = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("prometheus").join("usr/bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain([unpacked]);
    let found = dirs.map(|dir| dir.join(name)).find(|path| path.is_file());
    if found.is_none() {
        println!("skipped: there is no `{name}` (Debian package prometheus)");
    }
    found
}

/// The example, as built beside this test.
fn example() -> Option<PathBuf> {
    let test = std::env::current_exe().unwrap();
    let example = test.parent()?.with_file_name("examples").join("https_server");
    if !example.is_file() {
        println!("skipped: {} is not built", example.display());
        return None;
    }
    Some(example)
}

fn manifest() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/kubernetes")
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}

/// The body of the answer, empty while nobody answers.
fn get(port: u16, path: &str) -> String {
    let mut answer = Vec::new();
    let asked = TcpStream::connect(("127.0.0.1", port)).and_then(|mut connection| {
        connection.set_read_timeout(Some(Duration::from_secs(5)))?;
        write!(connection, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        connection.read_to_end(&mut answer)
    });
    let answer = if asked.is_ok() { String::from_utf8(answer).unwrap() } else { String::new() };
    answer.split_once("\r\n\r\n").map_or_else(String::new, |(_, body)| body.to_owned())
}

/// The only value in the answer to a query.
fn value(answer: &str) -> Option<f64> {
    let mut values = answer.split("\"value\":[").skip(1);
    let value = values.next()?.split('"').nth(1)?.parse().ok();
    assert!(values.next().is_none(), "several: {answer}");
    value
}

fn escaped(query: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_()".contains(&byte);
    let escape = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    query.bytes().map(escape).collect()
}

fn read(path: &Path) -> String {
    String::from_utf8(fs::read(path).unwrap()).unwrap()
}

const DAY: u64 = 86_400;

/// Prometheus needs some seconds to start on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);
