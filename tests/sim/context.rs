//! What every part of the simulated world shares: the clock, the queue of what is to come, chance, the trace, and the
//! network. Must not know what the events do.
//!
//! Invariant: of two events at one moment the one that was planned first comes first.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::chance::Chance;
use super::network::{Network, Packet, Place};
use super::plan::Plan;
use super::trace::Trace;
use crate::types::NodeId;

/// Milliseconds since the simulation began, on the clock that no fault touches.
pub type Ms = i64;

/// What is to come.
#[expect(clippy::large_enum_variant, reason = "most events are packets")]
#[derive(Debug)]
pub enum Event {
    /// A packet arrives.
    Packet(Packet),
    /// Something of a node's process; void when the process is no longer the same.
    Process {
        node: i32,
        life: u64,
        what: ProcessEvent,
    },
    /// A node's machine is switched on.
    Start {
        node: i32,
    },
    Controller {
        at: usize,
        what: ControllerEvent,
    },
    /// A client has something to do.
    Producer(usize),
    Consumer(usize),
    Transactional(usize),
    /// Somebody reads what is committed, of records or of offsets.
    Reader(usize),
    Offsets(usize),
    Member(usize),
    /// Somebody reads old records, wherever they lie.
    Scan,
    Mishap,
    /// A mishap ends.
    Mend(u64),
}

/// So many requests in a thousand arrive once more, much later.
const STRAGGLERS: u32 = 120;
/// The same of those that end a transaction.
const STRAGGLING_ENDS: u32 = 300;

/// A producer's requests are a stream with its number; the answers of each node are others.
const STREAMS: usize = 1_000;

/// The stream of the answers of a node to a producer.
pub fn answers_to(producer: usize, node: NodeId) -> usize {
    STREAMS * node.0.unsigned_abs() as usize + producer
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessEvent {
    /// The shards deal with their mailboxes.
    Pump,
    /// A shard has something to do by the time.
    Tick,
    /// A flush round is done.
    Synced(u64),
    Heartbeat,
    Register,
    /// Looks whether there is newer metadata.
    Poll,
    /// Opens what could not be opened.
    Retry,
    Checkpoint,
    /// Nobody has answered this call.
    CallTimeout(u64),
    /// This leader's fetcher has something to do by the time.
    Fetcher(i32),
    /// A fetch that waits here has waited long enough.
    FetchWait(u64),
    /// Coordinators have something to do by the time.
    Coordinate,
    /// What is damaged is looked at again.
    Repair,
    /// Nobody has answered this call to another broker.
    PeerTimeout(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerEvent {
    Decide,
    Commit,
    /// It leads from now on, in this term.
    Lead(u64),
    /// It hears that another one leads, in this term.
    Resign(u64),
    /// It takes in what is committed.
    Apply,
    /// Looks who lives, again and again in this term.
    Tick(u64),
    /// Looks at once.
    Judge,
    /// Nobody has answered this probe.
    ProbeTimeout(u64),
}

#[derive(Debug)]
pub struct Context {
    pub now: Ms,
    pub plan: Plan,
    pub chance: Chance,
    pub trace: Trace,
    pub network: Network,
    /// Nothing goes wrong by itself any more.
    pub calm: bool,
    /// Nobody begins a transaction any more.
    pub rests: bool,
    /// Nodes whose disks take long.
    pub slow: BTreeSet<i32>,
    /// When the last packet of each stream arrives.
    streams: BTreeMap<(usize, Place), Ms>,
    /// Connections on which something was lost.
    broken: BTreeSet<(usize, Place)>,
    queue: BinaryHeap<Reverse<(Ms, u64)>>,
    events: BTreeMap<u64, Event>,
    next: u64,
}

impl Context {
    pub fn new(seed: u64, plan: Plan, prints: bool) -> Context {
        let network = Network::new(&plan);
        Context {
            now: 0,
            plan,
            chance: Chance::new(seed),
            trace: Trace::new(prints),
            network,
            calm: false,
            rests: false,
            slow: BTreeSet::new(),
            streams: BTreeMap::new(),
            broken: BTreeSet::new(),
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            next: 0,
        }
    }

    /// A number that nothing else has.
    pub fn unique(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub fn after(&mut self, ms: Ms, event: Event) {
        let id = self.unique();
        self.queue.push(Reverse((self.now + ms.max(0), id)));
        self.events.insert(id, event);
    }

    /// The next event; the clock moves to its time.
    pub fn next_event(&mut self) -> Option<Event> {
        let Reverse((at, id)) = self.queue.pop()?;
        self.now = self.now.max(at);
        self.events.remove(&id)
    }

    /// Sends something. It may arrive late, twice, or never.
    pub fn send(&mut self, from: Place, to: Place, body: super::network::Body) {
        let copies = self.network.fate(from, to, self.calm, &mut self.chance);
        let Some((last, others)) = copies.split_last() else { return };
        for delay in others {
            let packet = Packet { from, to, body: body.clone() };
            self.after(*delay, Event::Packet(packet));
        }
        self.after(*last, Event::Packet(Packet { from, to, body }));
    }

    /// Now and then what is sent arrives once more, much later: somebody tried again meanwhile.
    pub fn straggle(&mut self, from: Place, to: Place, body: &super::network::Body, is_end: bool) {
        let times = if is_end { STRAGGLING_ENDS } else { STRAGGLERS };
        if !self.calm && !self.plan.keeps_order() && self.chance.permille(times) {
            let packet = Packet { from, to, body: body.clone() };
            let delay = self.chance.between(50, 2_500);
            self.after(delay, Event::Packet(packet));
        }
    }

    /// Sends something on a connection: it does not overtake what was sent before it, and when it gets lost nothing that
    /// follows arrives either.
    pub fn send_in_order(&mut self, stream: usize, from: Place, to: Place, body: super::network::Body) {
        let arrival = self.network.fate(from, to, self.calm, &mut self.chance).first().copied();
        let Some(delay) = arrival.filter(|_| !self.broken.contains(&(stream, to))) else {
            self.broken.insert((stream, to));
            return;
        };
        let last = self.streams.entry((stream, to)).or_default();
        *last = (self.now + delay).max(*last);
        let delay = *last - self.now;
        self.after(delay, Event::Packet(Packet { from, to, body }));
    }

    /// A producer connects anew: what was sent on its connections, and the answers to that, are no more.
    pub fn reconnect(&mut self, producer: usize) {
        self.broken.retain(|(of, _)| of % STREAMS != producer);
    }

    pub fn note(&mut self, what: std::fmt::Arguments<'_>) {
        self.trace.note(self.now, what);
    }
}

/// Notes something in the trace.
macro_rules! note {
    ($context:expr, $($what:tt)*) => { $context.note(format_args!($($what)*)) };
}
pub(crate) use note;
