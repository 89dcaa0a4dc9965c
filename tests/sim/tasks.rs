//! The tasks of one process: futures that are polled when something has woken them or their time has come.
//!
//! Must not know what they do. Invariant: those that are awake run in the order in which they were begun, so that the same seed
//! does the same.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use crate::broker::clock::simulation::take_waited_for;
use crate::types::MonotonicMs;

/// Whether a task is to be polled.
struct Awake(AtomicBool);

impl Wake for Awake {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Task {
    awake: Arc<Awake>,
    work: Pin<Box<dyn Future<Output = ()>>>,
}

#[derive(Default)]
pub struct Tasks {
    tasks: BTreeMap<u64, Task>,
    next: u64,
    timers: BTreeSet<(MonotonicMs, u64)>,
}

impl Tasks {
    /// Begins a task. The number is for `end`.
    pub fn begin(&mut self, work: impl Future<Output = ()> + 'static) -> u64 {
        self.next += 1;
        let awake = Arc::new(Awake(AtomicBool::new(true)));
        self.tasks.insert(self.next, Task { awake, work: Box::pin(work) });
        self.next
    }

    pub fn end(&mut self, task: u64) {
        self.tasks.remove(&task);
    }

    pub fn is_running(&self, task: u64) -> bool {
        self.tasks.contains_key(&task)
    }

    /// When somebody wants to go on although nothing has happened.
    pub fn wakes_at(&self) -> Option<MonotonicMs> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Polls until all wait. False when there was nothing to do.
    pub fn run(&mut self, now: MonotonicMs) -> bool {
        while let Some((_, task)) = self.timers.first().filter(|(at, _)| *at <= now).copied() {
            self.timers.pop_first();
            if let Some(task) = self.tasks.get(&task) {
                task.awake.0.store(true, Ordering::Relaxed);
            }
        }
        let mut has_worked = false;
        loop {
            let is_awake = |(_, task): &(&u64, &Task)| task.awake.0.load(Ordering::Relaxed);
            let awake: Vec<u64> = self.tasks.iter().filter(is_awake).map(|(id, _)| *id).collect();
            if awake.is_empty() {
                return has_worked;
            }
            has_worked = true;
            for id in awake {
                self.poll(id);
            }
        }
    }

    fn poll(&mut self, id: u64) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        task.awake.0.store(false, Ordering::Relaxed);
        let waker = Waker::from(task.awake.clone());
        let is_done = task.work.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        self.timers.extend(take_waited_for().into_iter().map(|at| (at, id)));
        if is_done {
            self.tasks.remove(&id);
        }
    }
}
