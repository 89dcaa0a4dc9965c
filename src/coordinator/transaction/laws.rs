//! What holds of transactions whatever happens: the records give the state back; a transaction is decided once, so that its
//! partitions all see it commit or all see it abort, wherever coordinators die; what a client was told is what happens; no
//! producer is given to two clients; and once the faults stop, time alone ends everything.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::script::{SETTINGS, image_at};
use super::*;
use crate::coordinator::{Encode as _, Now, Write};
use crate::metadata::Image;
use crate::types::ProducerEpoch;

const IDS: [&str; 2] = ["a", "b"];

#[derive(Clone, Debug)]
enum Step {
    Init {
        id: usize,
        as_owner: bool,
    },
    Add {
        id: usize,
        partition: i32,
        client: usize,
    },
    End {
        id: usize,
        commit: bool,
        client: usize,
    },
    /// The markers of one outstanding effect reach some of their partitions.
    Write {
        which: usize,
        all: bool,
    },
    Tick {
        ms: i64,
    },
    /// Everything so far is committed.
    Commit,
    /// The coordinator dies: what is not committed is lost, and so are the effects under way.
    Crash {
        loses_effects: bool,
    },
    NearExhaustion {
        id: usize,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let id = 0..IDS.len();
    let step = prop_oneof![
        4 => (id.clone(), any::<bool>()).prop_map(|(id, as_owner)| Step::Init { id, as_owner }),
        8 => (id.clone(), 0..3i32, 0..3usize).prop_map(|(id, partition, client)| Step::Add { id, partition, client }),
        8 => (id.clone(), any::<bool>(), 0..3usize).prop_map(|(id, commit, client)| Step::End { id, commit, client }),
        8 => (0..4usize, any::<bool>()).prop_map(|(which, all)| Step::Write { which, all }),
        2 => prop_oneof![1..50i64, 5_000..40_000i64].prop_map(|ms| Step::Tick { ms }),
        6 => Just(Step::Commit),
        2 => any::<bool>().prop_map(|loses_effects| Step::Crash { loses_effects }),
        1 => id.prop_map(|id| Step::NearExhaustion { id }),
    ];
    prop::collection::vec(step, 1..80)
}

/// What one transaction has come to, by the id and the time at which it began.
#[derive(Debug, Default)]
struct Outcome {
    decided: Option<TxnResult>,
    /// The partitions that are known to be in it, because somebody was told so.
    promised: BTreeSet<TopicPartition>,
    marked: BTreeSet<TopicPartition>,
}

struct World {
    now: i64,
    image: Image,
    version: i16,
    machine: Transactions,
    log: Vec<(Bytes, Option<Bytes>)>,
    /// What is decided and not committed.
    waiting: Vec<Waiting>,
    effects: Vec<Markers>,
    /// The producers that clients hold for each id, the newest last.
    clients: [Vec<Producer>; IDS.len()],
    given: BTreeSet<(ProducerId, ProducerEpoch)>,
    outcomes: BTreeMap<(String, i64), Outcome>,
    last_id: i64,
}

/// A step that waits for its commit: its records, and what is checked when the answer leaves.
struct Waiting {
    records: Vec<Write<Record>>,
    effects: Vec<Effect>,
    told: Option<Told>,
}

/// What a client hears.
enum Told {
    Producer { id: usize, producer: Producer, is_new: bool },
    Added { key: (String, i64), partition: TopicPartition },
    Ended { id: usize, key: Option<(String, i64)>, result: TxnResult, next: Option<Producer> },
}

impl World {
    fn new(version: i16) -> World {
        let mut world = World {
            now: 1_000_000,
            image: image_at(version),
            version,
            machine: Transactions::new(SETTINGS),
            log: Vec::new(),
            waiting: Vec::new(),
            effects: Vec::new(),
            clients: Default::default(),
            given: BTreeSet::new(),
            outcomes: BTreeMap::new(),
            last_id: 0,
        };
        world.take_over();
        world
    }

    fn fold(&self) -> Transactions {
        let mut machine = Transactions::new(SETTINGS);
        for (key, value) in &self.log {
            machine.replay(Offset(0), None, key.clone(), value.clone()).unwrap();
        }
        machine
    }

    fn take_over(&mut self) {
        self.machine = self.fold();
        let mut out = Out::default();
        let (now, image) = (self.now, self.image.clone());
        self.machine.begin(&context(now, &image), &mut out);
        self.keep(out, None);
    }

    /// Runs a command, with a producer id if it takes one. Gives the reply and the step.
    fn ask(&mut self, command: Command) -> (Reply, Out) {
        let image = self.image.clone();
        let mut out = Out::default();
        self.machine.step(&context(self.now, &image), ReplyToken(0), command, &mut out);
        let (_, reply) = out.replies.pop().unwrap();
        let Reply::NeedsProducerId(command) = reply else { return (reply, out) };
        assert!(out.records.is_empty() && out.effects.is_empty(), "nothing was done");
        self.last_id += 1;
        let (mut command, fresh) = (*command, Some(ProducerId(self.last_id)));
        match &mut command {
            Command::InitProducerId(init) => init.fresh = fresh,
            Command::EndTxn(end) => end.fresh = fresh,
            other => panic!("{other:?}"),
        }
        self.ask(command)
    }

    fn keep(&mut self, out: Out, told: Option<Told>) {
        self.waiting.push(Waiting { records: out.records, effects: out.effects, told });
    }

    fn commit(&mut self) -> Result<(), TestCaseError> {
        for Waiting { records, effects, told } in std::mem::take(&mut self.waiting) {
            for write in records {
                self.log.push(write.record.encode().unwrap());
            }
            for effect in effects {
                self.carry_out(effect)?;
            }
            if let Some(told) = told {
                self.hear(told)?;
            }
        }
        Ok(())
    }

    fn carry_out(&mut self, effect: Effect) -> Result<(), TestCaseError> {
        match effect {
            Effect::Write(markers) => self.effects.push(markers),
            Effect::NeedsProducerId { transactional_id, producer } => {
                self.last_id += 1;
                let fresh = Some(ProducerId(self.last_id));
                let (_, out) = self.ask(Command::AbortTimedOut { transactional_id, producer, fresh });
                self.keep(out, None);
            }
        }
        Ok(())
    }

    fn hear(&mut self, told: Told) -> Result<(), TestCaseError> {
        match told {
            Told::Producer { id, producer, is_new } => {
                let is_first = self.given.insert((producer.id, producer.epoch));
                prop_assert!(is_first || !is_new, "{:?} is given twice", producer);
                self.clients[id].push(producer);
            }
            Told::Added { key, partition } => {
                self.outcomes.entry(key).or_default().promised.insert(partition);
            }
            Told::Ended { id, key, result, next } => {
                if let Some(key) = key {
                    let outcome = self.outcomes.entry(key).or_default();
                    prop_assert!(outcome.decided.is_none_or(|decided| decided == result));
                    outcome.decided = Some(result);
                }
                if let Some(next) = next {
                    self.given.insert((next.id, next.epoch));
                    self.clients[id].push(next);
                }
            }
        }
        Ok(())
    }

    fn key(&self, id: &str) -> Option<(String, i64)> {
        let transaction = self.machine.transactions.get(id)?;
        Some((id.to_owned(), transaction.started.0))
    }

    fn client(&self, id: usize, client: usize) -> Option<Producer> {
        self.clients[id].iter().rev().nth(client).copied()
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        self.now += 1;
        let client_version = TransactionVersion(if self.version >= 2 { 2 } else { 0 });
        match *step {
            Step::Init { id, as_owner } => {
                let expected = self.client(id, 0).filter(|_| as_owner);
                let init = InitProducerId {
                    transactional_id: IDS[id].to_owned(),
                    timeout_ms: 20_000,
                    expected,
                    fresh: None,
                };
                let (reply, out) = self.ask(Command::InitProducerId(init));
                let told = match reply {
                    Reply::InitProducerId(Ok(producer)) => {
                        Some(Told::Producer { id, producer, is_new: expected.is_none() })
                    }
                    _ => None,
                };
                self.keep(out, told);
            }
            Step::Add { id, partition, client } => {
                let Some(producer) = self.client(id, client) else { return Ok(()) };
                let partition = TopicPartition::new("t", partition);
                let add = AddPartitions {
                    transactional_id: IDS[id].to_owned(),
                    producer,
                    partitions: vec![partition.clone()],
                    client_version,
                };
                let (reply, out) = self.ask(Command::AddPartitions(add));
                let told = match (reply, self.key(IDS[id])) {
                    (Reply::AddPartitions(Ok(())), Some(key)) => Some(Told::Added { key, partition }),
                    _ => None,
                };
                self.keep(out, told);
            }
            Step::End { id, commit, client } => {
                let Some(producer) = self.client(id, client) else { return Ok(()) };
                let result = if commit { TxnResult::Commit } else { TxnResult::Abort };
                let (transactional_id, fresh) = (IDS[id].to_owned(), None);
                let end = EndTxn { transactional_id, producer, result, client_version, fresh };
                let (reply, out) = self.ask(Command::EndTxn(end));
                let told = match reply {
                    Reply::EndTxn(Ok(next)) => Some(Told::Ended { id, key: self.key(IDS[id]), result, next }),
                    _ => None,
                };
                self.keep(out, told);
            }
            Step::Write { which, all } => self.write(which, all)?,
            Step::Tick { ms } => {
                self.now += ms;
                let (image, mut out) = (self.image.clone(), Out::default());
                self.machine.tick(&context(self.now, &image), &mut out);
                self.keep(out, None);
            }
            Step::Commit => self.commit()?,
            Step::Crash { loses_effects } => {
                self.waiting.clear();
                if loses_effects {
                    self.effects.clear();
                }
                self.take_over();
            }
            Step::NearExhaustion { id } => self.exhaust(IDS[id])?,
        }
        if self.waiting.iter().all(|waiting| waiting.records.is_empty()) {
            self.check_fold()?;
        }
        Ok(())
    }

    /// Markers reach partitions, also those of a coordinator that is no more.
    fn write(&mut self, which: usize, all: bool) -> Result<(), TestCaseError> {
        if self.effects.is_empty() {
            return Ok(());
        }
        let at = which % self.effects.len();
        let markers = self.effects[at].clone();
        let count = if all { markers.partitions.len() } else { 1 };
        let partitions: Vec<_> = markers.partitions.iter().take(count).cloned().collect();
        if all {
            self.effects.remove(at);
        }
        if let Some(key) = self.key_of(&markers) {
            let outcome = self.outcomes.entry(key).or_default();
            prop_assert!(outcome.decided.is_none_or(|decided| decided == markers.result), "{:?}", markers);
            outcome.decided = Some(markers.result);
            outcome.marked.extend(partitions.iter().cloned());
        }
        let Markers { transactional_id, producer, started, .. } = markers;
        let (_, out) = self.ask(Command::MarkersWritten { transactional_id, producer, started, partitions });
        self.keep(out, None);
        Ok(())
    }

    /// The transaction that markers are of, while it is still the present one.
    fn key_of(&self, markers: &Markers) -> Option<(String, i64)> {
        let current = self.machine.transactions.get(&markers.transactional_id)?;
        let is_its = (current.producer(), current.started) == (markers.producer, markers.started)
            && current.state.ending().is_some();
        is_its.then(|| self.key(&markers.transactional_id))?
    }

    /// An id at rest comes near the end of its epochs, as after very many transactions.
    fn exhaust(&mut self, id: &str) -> Result<(), TestCaseError> {
        self.commit()?;
        let Some(current) = self.machine.transactions.get(id).filter(|current| current.is_at_rest()) else {
            return Ok(());
        };
        if current.is_exhausted() {
            return Ok(());
        }
        let next = Transaction {
            epoch: ProducerEpoch(i16::MAX - 2),
            last_epoch: ProducerEpoch::NONE,
            ..current.clone()
        };
        let (image, mut out) = (self.image.clone(), Out::default());
        let producer = next.producer();
        self.machine.put(&context(self.now, &image), id, next, &mut out);
        self.keep(out, None);
        let at = IDS.iter().position(|other| *other == id).unwrap();
        self.given.insert((producer.id, producer.epoch));
        self.clients[at].push(producer);
        self.commit()
    }

    fn check_fold(&self) -> Result<(), TestCaseError> {
        let hard = |machine: &Transactions| {
            let stored = machine.transactions.iter();
            stored.map(|(id, it)| (id.clone(), it.to_value(TransactionVersion(2)))).collect::<Vec<_>>()
        };
        // What is not in version 0 is not given back.
        if self.version >= 1 {
            prop_assert_eq!(hard(&self.machine), hard(&self.fold()));
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<(), TestCaseError> {
        self.waiting.clear();
        self.effects.clear();
        self.take_over();
        for _ in 0..40 {
            self.commit()?;
            while !self.effects.is_empty() {
                self.step(&Step::Write { which: 0, all: true })?;
                self.commit()?;
            }
            self.step(&Step::Tick { ms: 10_000 })?;
        }
        for (id, transaction) in &self.machine.transactions {
            prop_assert!(transaction.is_at_rest(), "{}: {:?}", id, transaction);
        }
        for (key, outcome) in &self.outcomes {
            if outcome.decided.is_some() && !outcome.promised.is_empty() {
                prop_assert_eq!(&outcome.promised, &(&outcome.promised & &outcome.marked), "{:?}", key);
            }
        }
        Ok(())
    }
}

fn context(now: i64, image: &Image) -> Context<'_> {
    Context {
        now: Now { monotonic: MonotonicMs(now), wall: TimestampMs(now) },
        image,
        record_max: usize::MAX,
    }
}

proptest! {
    #[test]
    fn transactions_end_all_or_nothing(steps in steps(), version in 0..3i16) {
        let mut world = World::new(version);
        for step in &steps {
            world.step(step)?;
        }
        world.settle()?;
    }
}
