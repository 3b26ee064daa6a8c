//! The arrows of the structure, read from the sources: imports follow the data and never go back.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "reads its own sources")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// What a module may import of the crate. A module that is not listed is a mistake of this list.
const ALLOWED: &[(&str, &[&str])] = &[
    ("paths", &[]),
    ("der", &[]),
    ("pem", &["der"]),
    ("trust", &["bundle", "der", "paths", "pem"]),
    ("bundle", &["der", "paths", "pem", "trust"]),
    ("server", &["bundle", "trust"]),
    ("client", &["bundle", "server", "trust"]),
    ("generation", &["bundle", "client", "server"]),
    ("store", &["bundle", "client", "generation", "server"]),
    ("resolver", &["store"]),
    ("verifier", &["server", "store"]),
    ("socket", &["sys"]),
    ("connections", &["generation", "server", "socket", "store"]),
    ("handshake", &["bundle", "connections", "metrics", "socket", "store"]),
    ("listener", &["connections", "handshake", "reload", "socket", "sys"]),
    ("sys", &[]),
    ("thread", &[]),
    ("source", &["paths", "sys"]),
    ("load", &["bundle", "paths", "server", "source"]),
    ("watch", &["source", "sys", "thread", "watch"]),
    ("difference", &["bundle"]),
    ("trigger", &[]),
    ("metrics", &["trigger"]),
    ("events", &["difference", "generation", "load", "trigger", "watch"]),
    (
        "reload",
        &[
            "bundle",
            "client",
            "connections",
            "events",
            "generation",
            "load",
            "metrics",
            "paths",
            "resolver",
            "server",
            "source",
            "store",
            "thread",
            "trust",
            "verifier",
            "watch",
        ],
    ),
    ("publish", &[]),
    ("issue", &[]),
    ("fuzzing", &["bundle", "reload", "source", "watch"]),
];

/// What a handshake uses.
const SERVING: &[&str] = &[
    "handshake",
    "connections",
    "resolver",
    "verifier",
    "client",
    "server",
    "store",
    "generation",
    "bundle",
    "trust",
];

/// What a handshake must never wait for.
const RELOADING: &[&str] = &["reload", "watch", "source", "load"];

#[test]
fn imports_follow_the_arrows() {
    let allowed: BTreeMap<_, _> = ALLOWED.iter().copied().collect();
    for (module, imports) in imports() {
        let allowed = allowed.get(module.as_str()).unwrap_or_else(|| panic!("`{module}` has no row here"));
        for import in imports.iter().filter(|import| **import != module) {
            assert!(allowed.contains(&import.as_str()), "`{module}` must not import `{import}`");
        }
    }
}

#[test]
fn nothing_that_a_handshake_uses_reaches_the_disk_or_the_threads() {
    let imports = imports();
    let mut reached: BTreeSet<String> = SERVING.iter().map(ToString::to_string).collect();
    let mut todo: Vec<_> = reached.iter().cloned().collect();
    while let Some(module) = todo.pop() {
        for next in imports.get(&module).into_iter().flatten() {
            if reached.insert(next.clone()) {
                todo.push(next.clone());
            }
        }
    }
    for module in RELOADING {
        assert!(!reached.contains(*module), "a handshake reaches `{module}`");
    }
}

#[test]
fn platforms_differ_in_one_file() {
    let files = sources().into_iter().filter(|(_, text)| text.contains("cfg(") && text.contains("target_os"));
    let names: Vec<_> = files.map(|(path, _)| path.file_name().unwrap().to_owned()).collect();
    assert_eq!(names, ["sys.rs"]);
}

/// The modules at the top of the crate, each with those that it imports.
fn imports() -> BTreeMap<String, BTreeSet<String>> {
    let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, text) in sources() {
        let module = path.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs").to_owned();
        if module == "lib" {
            continue;
        }
        let found = imports.entry(module).or_default();
        // Test modules may look around.
        let code = text.split("#[cfg(test)]\nmod ").next().unwrap();
        let code = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        for line in code {
            for tail in line.split("crate::").skip(1) {
                let name: String = tail.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
                let group = tail.trim_start_matches('{').split(',').map(|name| name.trim().to_owned());
                let names = if name.is_empty() { group.collect() } else { vec![name] };
                let modules = names.into_iter().filter(|name| is_module(name));
                found.extend(modules);
            }
        }
    }
    imports
}

fn is_module(name: &str) -> bool {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    !name.is_empty() && (src.join(format!("{name}.rs")).is_file() || src.join(name).is_dir())
}

/// Every source file but tests, by its path below `src`.
fn sources() -> Vec<(PathBuf, String)> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut todo = vec![src.clone()];
    let mut found = Vec::new();
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                todo.push(path);
            } else if path.extension().is_some_and(|ext| ext == "rs") && !path.ends_with("tests.rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path.strip_prefix(&src).unwrap().to_owned(), text));
            }
        }
    }
    found.sort();
    found
}
