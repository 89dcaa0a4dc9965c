//! Proof by simulation. A whole cluster runs in one thread from one seed: the product's shards, followers, fetch plans,
//! metadata decisions, reconcilers and logs over simulated disks, with simulated clocks, network and metadata log. Things go
//! wrong as the seed has it, clients note what they were told, and the laws in `invariants` are held against it.
//!
//! It is compiled into the library's tests, since the deliberate faults and the clock of the simulation exist only there.
//! Coordinators run as they do in the product, their drivers included; so do the inquiry and the delivery of markers. What
//! starts their tasks, what carries requests between brokers, and the handlers' frames are the simulation's own
//! (`tasks`, `coordination`, `handlers`).
//!
//! In reading order: `plan` (what a seed decides), `context` (the queue), `network`, `quorum` with `controller`, `process` with
//! `replication`, `coordination` and `repairing`, `node`, `clients`, `transactional`, `readers`, `members`, `history`, `ledger`, `mishaps` with `rot`, `world`,
//! `invariants`.

mod chance;
mod clients;
mod context;
mod controller;
mod coordination;
mod handlers;
mod history;
mod invariants;
mod ledger;
mod members;
mod mishaps;
mod network;
mod node;
mod plan;
mod process;
mod quorum;
mod readers;
mod repairing;
mod replication;
mod rot;
mod tasks;
mod trace;
mod transactional;
mod world;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, Once};

use plan::{Mishap, Plan};
use world::{Outcome, World};

use crate::broker::clock;
use crate::fault::{self, Fault};

/// The seeds of `make test`. More of them run by `make sim`.
const SEEDS: u64 = 250;

thread_local! {
    /// Panics here are results.
    static QUIET: Cell<bool> = const { Cell::new(false) };
    static PANIC: Cell<Option<String>> = const { Cell::new(None) };
}

/// Keeps panics of simulations out of the output: they are told with their seeds.
fn quieten() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if QUIET.get() {
                PANIC.set(Some(info.to_string()));
            } else {
                before(info);
            }
        }));
    });
}

/// Runs one seed; a panic of the product is a failure like any other.
fn run(seed: u64, prints: bool) -> Result<Outcome, String> {
    quieten();
    QUIET.set(true);
    let result = catch_unwind(AssertUnwindSafe(|| World::new(seed, prints).run()));
    QUIET.set(false);
    clock::simulate(None);
    result.unwrap_or_else(|_| Err(PANIC.take().unwrap_or_default()))
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs seeds on all processors. Each failure says how it is replayed.
fn run_all(first: u64, count: u64) -> Vec<Outcome> {
    let next = AtomicU64::new(first);
    let (outcomes, failures) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + count {
                break;
            }
            match run(seed, false) {
                Ok(outcome) => outcomes.lock().unwrap().push(outcome),
                Err(broken) => {
                    eprintln!("seed {seed}: {broken}");
                    failures.lock().unwrap().push((seed, broken));
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let mut failures = failures.into_inner().unwrap();
    failures.sort_unstable();
    let told: Vec<String> = failures
        .iter()
        .map(|(seed, broken)| {
            format!("seed {seed}: {broken}\n  replay: make sim SEEDS=1 START={seed} TRACE=1")
        })
        .collect();
    assert!(failures.is_empty(), "{} of {count} seeds fail\n{}", failures.len(), told.join("\n"));
    outcomes.into_inner().unwrap()
}

#[test]
fn the_laws_hold_whatever_goes_wrong() {
    let (first, count) = (from_environment("START").unwrap_or(0), from_environment("SEEDS").unwrap_or(SEEDS));
    if from_environment("TRACE").is_some() {
        // The product's own words go between the lines of the trace.
        let log = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).without_time();
        let _ = log.with_writer(std::io::stderr).with_ansi(false).try_init();
        for seed in first..first + count {
            let outcome = run(seed, true);
            eprintln!("seed {seed}: {outcome:?}");
            outcome.unwrap();
        }
        return;
    }
    let outcomes = run_all(first, count);
    let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum::<u64>();
    let slowest = outcomes.iter().map(|outcome| outcome.recovered_after).max().unwrap_or(0);
    println!(
        "{count} seeds from {first}: {} acknowledgements, {} elections, {} transactions, {} takeovers, whole again after {slowest} ms at most",
        sum(|outcome| outcome.acknowledged),
        sum(|outcome| outcome.elections),
        sum(|outcome| outcome.transactions),
        sum(|outcome| outcome.takeovers),
    );
    if count >= SEEDS {
        assert!(sum(|outcome| outcome.acknowledged) > 50 * count, "the laws are not put to the test");
        assert!(sum(|outcome| outcome.elections) > 5 * count, "the laws are not put to the test");
        assert!(sum(|outcome| outcome.transactions) > 5 * count, "the laws are not put to the test");
        assert!(sum(|outcome| outcome.takeovers) > count / 10, "the laws are not put to the test");
    }
}

#[test]
fn the_same_seed_does_the_same() {
    for seed in [3, 7, 11] {
        let (one, two) = (run(seed, false), run(seed, false));
        assert_eq!(one, two, "seed {seed}");
    }
}

/// Whether a seed has what a fault takes to show.
fn may_find(fault: Fault, seed: u64) -> bool {
    let plan = Plan::of(seed);
    let takes_transactions = Fault::OF_COORDINATORS.contains(&fault);
    let takes_overtaking = fault == Fault::TakesPastTerms;
    let takes_rot = Fault::OF_DISKS.contains(&fault);
    (!takes_transactions || plan.transactions.is_some())
        && (!takes_overtaking || plan.mishaps.contains(&Mishap::Overtake))
        && (!takes_rot || plan.has_rot())
}

/// The first seed that finds the fault.
fn finds(fault: Fault) -> Option<(u64, String)> {
    let mut seeds = (0..SEEDS).filter(|seed| may_find(fault, *seed));
    fault::with(fault, || seeds.find_map(|seed| Some((seed, run(seed, false).err()?))))
}

#[test]
fn each_deliberate_fault_is_found() {
    let faults = Fault::OF_FOLLOWER.iter().chain(&Fault::OF_LEADER).chain(&Fault::OF_CLUSTER);
    let only = std::env::var("FAULT").ok();
    let is_asked_for = |fault: &Fault| only.as_ref().is_none_or(|only| format!("{fault:?}") == *only);
    let faults = faults.chain(&Fault::OF_DISKS).chain(&Fault::OF_COORDINATORS).copied();
    let faults: Vec<Fault> = faults.filter(is_asked_for).collect();
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(fault) = faults.get(next.fetch_add(1, Ordering::Relaxed)) {
            match finds(*fault) {
                Some((seed, broken)) => {
                    let broken: String = broken.chars().take(160).collect();
                    println!("{fault:?} is found by seed {seed}: {broken}");
                }
                None => missed.lock().unwrap().push(*fault),
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, std::num::NonZero::get) {
            scope.spawn(work);
        }
    });
    let missed = missed.into_inner().unwrap();
    assert!(missed.is_empty(), "no seed below {SEEDS} finds {missed:?}");
}
