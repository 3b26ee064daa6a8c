//! Starting and ending: bounded, repeatable, from any thread and from callbacks, leaving nothing behind.

mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use common::{Files, Mount, Pki, SOON, eventually, serves};
use rustls_reload::{Backend, Event, Health, ReloadError, Reloader, Watcher};

#[test]
fn shutdown_is_quick_also_while_a_callback_runs() {
    let pki = Pki::new();
    let mount = Mount::with(&pki.pair(1));
    let entered = Arc::new(AtomicU64::new(0));
    let inside = Arc::clone(&entered);
    let reloader = Reloader::builder(mount.paths()).on_swap(move |_| {
        inside.fetch_add(1, Ordering::SeqCst);
        thread::park_timeout(Duration::from_secs(5));
    });
    let reloader = reloader.start().unwrap();
    mount.swap(&pki.pair(2));
    eventually(SOON, "the callback runs", || entered.load(Ordering::SeqCst) == 1);
    mount.swap(&pki.pair(3));
    let begun = Instant::now();
    reloader.shutdown();
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(3), "bounded: {took:?}");
    assert!(matches!(reloader.health(), Health::Stopped));
    assert_eq!(reloader.store().number(), 2, "nothing is published any more");
}

#[test]
fn every_method_answers_from_a_callback() {
    let pki = Pki::new();
    let mount = Mount::with(&pki.pair(1));
    let other = Files::with(&pki.pair(7));
    let watcher = Watcher::start(Backend::Auto).unwrap();
    let handle: Arc<OnceLock<Reloader>> = Arc::default();
    let answers: Arc<Mutex<Vec<String>>> = Arc::default();
    let (own, said) = (Arc::clone(&handle), Arc::clone(&answers));
    let (shared, paths) = (watcher.clone(), other.paths());
    let reloader = Reloader::builder(mount.paths()).watcher(&watcher).on_swap(move |swap| {
        let reloader = own.get().expect("set before the first swap");
        let refused = matches!(reloader.reload_now(), Err(ReloadError::OnReloadThread));
        let served = reloader.current().is_some_and(|now| now.number() == swap.generation().number());
        let ready = matches!(reloader.health(), Health::Ready);
        let added = Reloader::builder(paths.clone()).watcher(&shared).start().is_ok();
        reloader.shutdown();
        said.lock().unwrap().push(format!("{refused} {served} {ready} {added}"));
    });
    let reloader = reloader.start().unwrap();
    handle.set(reloader.clone()).expect("once");
    mount.swap(&pki.pair(2));
    eventually(SOON, "the callback came to its end", || !answers.lock().unwrap().is_empty());
    assert_eq!(*answers.lock().unwrap(), ["true true true true"]);
    assert!(matches!(reloader.reload_now(), Err(ReloadError::Stopped)));
}

#[test]
fn last_handle_may_be_dropped_in_a_callback() {
    let pki = Pki::new();
    let mount = Mount::with(&pki.pair(1));
    let handle: Arc<Mutex<Option<Reloader>>> = Arc::default();
    let dropped = Arc::new(AtomicU64::new(0));
    let (taken, count) = (Arc::clone(&handle), Arc::clone(&dropped));
    let reloader = Reloader::builder(mount.paths()).on_swap(move |_| {
        drop(taken.lock().unwrap().take());
        count.fetch_add(1, Ordering::SeqCst);
    });
    let store = {
        let reloader = reloader.start().unwrap();
        let store = Arc::clone(reloader.store());
        *handle.lock().unwrap() = Some(reloader);
        store
    };
    mount.swap(&pki.pair(2));
    eventually(SOON, "the callback ran", || dropped.load(Ordering::SeqCst) == 1);
    assert_eq!(store.number(), 2, "what was handed out stays usable");
}

#[test]
fn callback_that_panics_does_not_end_reloading() {
    let pki = Pki::new();
    let mount = Mount::with(&pki.pair(1));
    let reloader = Reloader::builder(mount.paths()).on_swap(|swap| {
        assert_ne!(swap.generation().number(), 2, "on purpose");
    });
    let reloader = reloader.start().unwrap();
    for next in 2..=3 {
        mount.swap(&pki.pair(next));
        serves(&reloader, next);
    }
    eventually(SOON, "counted", || reloader.stats().callback_panics == 1);
    assert!(matches!(reloader.health(), Health::Ready));
}

#[test]
fn slow_subscriber_loses_events_but_delays_nothing() {
    let pki = Pki::new();
    let mount = Mount::with(&pki.pair(1));
    let reloader = Reloader::builder(mount.paths()).start().unwrap();
    let events = reloader.subscribe();
    for next in 2..=300 {
        mount.swap(&pki.pair(next));
        reloader.wait_for(next, SOON).expect("published");
    }
    eventually(SOON, "the rest is counted", || reloader.stats().dropped_events == 299 - 256);
    assert!(matches!(events.recv(), Ok(Event::Swapped(swap)) if swap.generation().number() == 2));
}

#[test]
fn callback_that_blocks_for_5_s_delays_reloads_and_nothing_else() {
    let pki = Pki::new();
    let mount = Mount::with(&pki.pair(1));
    let entered = Arc::new(AtomicU64::new(0));
    let inside = Arc::clone(&entered);
    let reloader = Reloader::builder(mount.paths()).on_event(move |_| {
        if inside.fetch_add(1, Ordering::SeqCst) == 0 {
            let end = Instant::now() + Duration::from_secs(5);
            while let Some(left) = end.checked_duration_since(Instant::now()) {
                thread::park_timeout(left);
            }
        }
    });
    let reloader = reloader.start().unwrap();
    let events = reloader.subscribe();
    mount.swap(&pki.pair(2));
    eventually(SOON, "the callback runs", || entered.load(Ordering::SeqCst) == 1);
    for next in 3..=6 {
        mount.swap(&pki.pair(next));
    }
    let begun = Instant::now();
    assert!(matches!(reloader.health(), Health::Ready), "slow is not stuck");
    assert_eq!(reloader.server_config().alpn_protocols.len(), 0);
    assert!(begun.elapsed() < Duration::from_secs(1), "nobody else waits");
    eventually(2 * SOON, "the newest is served at last", || common::serial(&reloader) == 6);
    eventually(SOON, "everything is told", || entered.load(Ordering::SeqCst) >= 2);
    let told: Vec<_> = events.try_iter().collect();
    assert!(
        matches!(&told[..], [Event::Swapped(_), .., Event::Swapped(last)]
        if last.generation().bundle().leaf().serial().ends_with('6')),
        "{told:?}"
    );
}

#[test]
fn events_are_told_in_order_to_callbacks_and_subscribers_alike() {
    let pki = Pki::new();
    let (first, second) = (pki.pair(1), pki.pair(2));
    let files = Files::with(&first);
    let told: Arc<Mutex<Vec<&str>>> = Arc::default();
    let (swaps, all) = (Arc::clone(&told), Arc::clone(&told));
    let word = |event: &Event| match event {
        Event::Swapped(_) => "swapped",
        Event::Failed(_) => "failed",
        Event::Recovered => "recovered",
        _ => "other",
    };
    let reloader = Reloader::builder(files.paths())
        .on_swap(move |_| swaps.lock().unwrap().push("on_swap"))
        .on_event(move |event| all.lock().unwrap().push(word(event)));
    let reloader = reloader.start().unwrap();
    let events = reloader.subscribe();
    files.rename_over(&second);
    serves(&reloader, 2);
    common::rename_over(&files.key(), &first.key);
    eventually(SOON, "failed", || told.lock().unwrap().contains(&"failed"));
    common::rename_over(&files.key(), &second.key);
    eventually(SOON, "recovered", || told.lock().unwrap().contains(&"recovered"));
    files.rename_over(&pki.pair(3));
    eventually(SOON, "swapped", || told.lock().unwrap().len() >= 6);
    let expected = ["on_swap", "swapped", "failed", "recovered", "on_swap", "swapped"];
    assert_eq!(*told.lock().unwrap(), expected);
    let subscribed: Vec<_> = events.try_iter().map(|event| word(&event)).collect();
    assert_eq!(subscribed, ["swapped", "failed", "recovered", "swapped"]);
    assert_eq!(reloader.stats().failures, 1);
}

#[test]
fn on_event_may_do_what_on_swap_may() {
    let pki = Pki::new();
    let mount = Mount::with(&pki.pair(1));
    let handle: Arc<Mutex<Option<Reloader>>> = Arc::default();
    let answers: Arc<Mutex<Vec<bool>>> = Arc::default();
    let (own, said, paths) = (Arc::clone(&handle), Arc::clone(&answers), mount.paths());
    let reloader = Reloader::builder(mount.paths()).on_event(move |_| {
        let last = own.lock().unwrap().take().expect("set before the first event");
        let refused = matches!(last.reload_now(), Err(ReloadError::OnReloadThread));
        let added = Reloader::builder(paths.clone()).start().is_ok();
        said.lock().unwrap().push(refused && added);
        last.shutdown();
        drop(last);
        panic!("on purpose");
    });
    let reloader = reloader.start().unwrap();
    let store = Arc::clone(reloader.store());
    *handle.lock().unwrap() = Some(reloader);
    mount.swap(&pki.pair(2));
    eventually(SOON, "the callback came to its end", || *answers.lock().unwrap() == [true]);
    mount.swap(&pki.pair(3));
    assert_eq!(store.number(), 2, "nothing is published after the end");
}

#[test]
fn no_callback_starts_after_shutdown_not_even_the_next_one_of_an_event_that_is_being_told() {
    let pki = Pki::new();
    let mount = Mount::with(&pki.pair(1));
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = Mutex::new(released);
    let (entered, late) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (inside, after) = (Arc::clone(&entered), Arc::clone(&late));
    let reloader = Reloader::builder(mount.paths())
        .on_swap(move |_| {
            inside.fetch_add(1, Ordering::SeqCst);
            released.lock().unwrap().recv().unwrap_err();
        })
        .on_event(move |_| {
            after.fetch_add(1, Ordering::SeqCst);
        });
    let reloader = reloader.start().unwrap();
    mount.swap(&pki.pair(2));
    eventually(SOON, "the first callback runs", || entered.load(Ordering::SeqCst) == 1);
    reloader.shutdown();
    drop(release);
    drop(reloader);
    // The callbacks are dropped with the thread, and their counters with them: now it can be said for sure.
    eventually(SOON, "the thread has ended", || Arc::strong_count(&late) == 1);
    assert_eq!(late.load(Ordering::SeqCst), 0);
}
