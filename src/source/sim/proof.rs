//! The proof of the pinned read.
//!
//! For every recipe and every way in which the writer's calls fall between the reader's:
//!
//! 1. What the read returns is the state of the disk at one instant of the time that it took; so is each
//!    error, except [`ReadError::Unsettled`](crate::source::ReadError::Unsettled).
//! 2. A writer that is atomic is never seen in between, and never makes the read fail.
//! 3. A disk that stands still, wherever the writer stopped or died, is read as it is.
//!
//! One stop of the writer at any of its calls and one switch at any of the reader's: all combinations. A
//! second switch: all combinations for the recipes that are short enough. More: at random, from fixed seeds.
//! `--nocapture` shows how many interleavings that were; `--ignored` runs many more.

use super::Reuse;
use super::explore::{Ground, Report};
use super::recipe::{self, Clock, Nature};
use super::state::State;
use crate::source::Sabotage;

fn grounds(clock: Clock) -> impl Iterator<Item = Ground> {
    recipe::all().into_iter().map(move |recipe| Ground::new(recipe, clock, Reuse::AtOnce))
}

fn all_hold(title: &str, ground: &Ground, report: Report) {
    match report {
        Ok(count) => println!("{title}, {}: {count} interleavings", ground.recipe.name),
        Err(violation) => panic!("{title}, {violation}"),
    }
}

#[test]
fn recipes_are_what_they_claim_and_end_in_their_last_generation() {
    for Ground { recipe, states, .. } in grounds(Clock::Fine) {
        let whole = |state: &State| (1..=recipe.last).any(|number| state.is_generation(number));
        assert!(states[0].is_generation(1), "{}: {:?}", recipe.name, states[0]);
        let last = states.last().unwrap();
        assert!(last.is_generation(recipe.last), "{}: {last:?}", recipe.name);
        let atomic = recipe.nature == Nature::Atomic;
        assert_eq!(states.iter().all(whole), atomic, "{}", recipe.name);
    }
}

#[test]
fn one_switch_anywhere_shows_one_instant() {
    for ground in grounds(Clock::Fine).filter(|ground| ground.recipe.ops.len() <= 16) {
        all_hold("one switch", &ground, ground.one_switch());
    }
}

#[test]
fn two_switches_anywhere_show_one_instant() {
    for ground in grounds(Clock::Fine).filter(|ground| ground.recipe.ops.len() <= 6) {
        all_hold("two switches", &ground, ground.two_switches());
    }
}

#[test]
fn switches_at_random_show_one_instant() {
    for ground in grounds(Clock::Fine) {
        all_hold("at random", &ground, ground.random(300));
    }
}

/// Two writes in one tick, in one inode, of one size: only the bytes differ.
#[test]
fn time_stamps_that_tell_nothing_apart_show_one_instant() {
    for ground in grounds(Clock::OneTickForAll).filter(|ground| ground.recipe.ops.len() <= 8) {
        all_hold("one switch, one tick", &ground, ground.one_switch());
        all_hold("at random, one tick", &ground, ground.random(50));
    }
}

/// A link that leads there, back and there again: no look at it is wrong, and no sum of them may be.
#[test]
fn shared_link_moved_three_times_shows_one_instant() {
    let ground = Ground::new(recipe::toggle(), Clock::Fine, Reuse::AtOnce);
    all_hold("three switches", &ground, ground.switches_of(&[1, 1, 1]));
}

/// The certificate is replaced while it is read, the key before it is read and in the same inode; when both
/// are read, a third certificate gets the inode of the first.
#[test]
fn inode_that_comes_back_shows_one_instant() {
    let ground = Ground::new(
        recipe::named("each removed and created, two rotations, certificate first"),
        Clock::OneTickForAll,
        Reuse::AtOnce,
    );
    all_hold("switches of 6 and 3", &ground, ground.switches_of(&[6, 3]));
}

/// A file that comes or goes between the listing and the end of the read.
#[test]
fn files_that_come_and_go_in_a_directory_show_one_instant() {
    for clock in [Clock::Fine, Clock::OneTickForAll] {
        let ground = Ground::new(recipe::crls_exchanged(), clock, Reuse::AtOnce);
        all_hold("one switch", &ground, ground.one_switch());
        all_hold("two switches", &ground, ground.two_switches());
        all_hold("at random", &ground, ground.random(1000));
    }
}

#[test]
#[ignore = "takes minutes"]
fn more_switches_show_one_instant() {
    for clock in [Clock::Fine, Clock::OneTickForTheWriter, Clock::OneTickForAll] {
        for reuse in [Reuse::AtOnce, Reuse::Never] {
            for ground in recipe::all().into_iter().map(|recipe| Ground::new(recipe, clock, reuse)) {
                let title = format!("{clock:?}, {reuse:?}");
                all_hold(&title, &ground, ground.one_switch());
                all_hold(&title, &ground, ground.random(20_000));
                if ground.recipe.ops.len() <= 12 {
                    all_hold(&title, &ground, ground.two_switches());
                }
            }
        }
    }
}

// The tests of the test: whatever is taken out of the read, the explorer misses it.

#[test]
fn without_the_recheck_the_proof_fails() {
    let sabotage = Sabotage { trusts_first_look: true, ..Sabotage::default() };
    for name in ["kubelet, old directory removed", "certbot, rm and ln, certificate first"] {
        let ground = Ground::new(recipe::named(name), Clock::Fine, Reuse::AtOnce);
        assert!(ground.with_sabotage(sabotage).one_switch().is_err(), "{name}");
    }
}

#[test]
fn without_the_shared_link_answer_the_proof_fails() {
    let sabotage = Sabotage { asks_twice: true, ..Sabotage::default() };
    let ground = Ground::new(recipe::toggle(), Clock::Fine, Reuse::AtOnce);
    assert!(ground.with_sabotage(sabotage).switches_of(&[1, 1, 1]).is_err());
}

#[test]
fn without_the_second_reading_the_proof_fails() {
    let sabotage = Sabotage { trusts_stamps: true, ..Sabotage::default() };
    for name in ["in place in 1, certificate first", "written over, not cut, key first"] {
        let ground = Ground::new(recipe::named(name), Clock::OneTickForAll, Reuse::AtOnce);
        assert!(ground.with_sabotage(sabotage).one_switch().is_err(), "{name}");
    }
}

#[test]
fn without_the_second_listing_the_proof_fails() {
    let sabotage = Sabotage { trusts_listing: true, ..Sabotage::default() };
    let ground = Ground::new(recipe::crls_exchanged(), Clock::Fine, Reuse::AtOnce);
    assert!(ground.with_sabotage(sabotage).one_switch().is_err());
    let ground = Ground::new(recipe::named("CRLs renamed into a directory"), Clock::Fine, Reuse::AtOnce);
    assert!(ground.with_sabotage(sabotage).one_switch().is_err());
}

/// The known limit, as the docs of the read state it: two links, each moved there, back and there again
/// within one read, to files that were there all the time.
#[test]
fn separate_links_moved_three_times_within_one_read_go_unseen() {
    let ground = Ground::new(recipe::separate_toggles(), Clock::Fine, Reuse::AtOnce);
    assert!(ground.switches_of(&[2, 2, 2]).is_err());
}
