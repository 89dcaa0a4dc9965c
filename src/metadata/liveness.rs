//! Which brokers live, as the active controller judges it: what it has heard of each and when, what its own probes found,
//! and whom others wait for in vain. Events and the time come in, [`Verdict`]s go out; nothing of this is in the metadata
//! log, and a new controller begins with an empty mind.
//!
//! It must not know connections or requests. How it judges:
//! - A process that is gone refuses connections. When the connection of a broker breaks it is dialled, and fenced when it
//!   refuses twice in a row: no timeout is waited for.
//! - A process that hangs says nothing. It is fenced when it has been silent for a while, does not answer a probe, and
//!   another broker waits for it in vain as well; without such a witness only when its session is over.
//! - A process that merely was slow is given more time from then on.
//! - A process that can call but not be called is of no use to clients and followers, though its heartbeats come. It is
//!   fenced when most of the others wait for it in vain and probes find nobody where one was found before, or all of them
//!   and probes find nobody; and stays so until a probe is answered, or for a while, which is short where there is nothing
//!   but the others' word.
//!
//! Invariants: a broker is condemned only in the epoch that was watched, and never for time during which this controller
//! itself stood still.

mod contact;

#[cfg(test)]
mod laws;
#[cfg(test)]
mod script;

use self::contact::Contact;
use super::brokers::Brokers;
use crate::types::{BrokerEpoch, MonotonicMs, NodeId, Offset};
use std::collections::BTreeMap;

/// How patient a controller is, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LivenessConfig {
    /// `broker.session.timeout.ms`: silence for which a broker is fenced in any case.
    pub session_ms: i64,
    /// Silence for which it is fenced when a witness and a probe agree.
    pub agreed_ms: i64,
    /// Silence after which it is probed, and how often then.
    pub probe_after_ms: i64,
    pub probe_pause_ms: i64,
    /// Between the two dials to a broker whose connection broke.
    pub redial_pause_ms: i64,
}

impl LivenessConfig {
    /// For this session timeout. A broker that stands still for two seconds must not be fenced: with a heartbeat interval
    /// and some delay that is less than 2.4 s of silence.
    pub fn new(session_ms: i64) -> LivenessConfig {
        LivenessConfig {
            session_ms,
            agreed_ms: session_ms.min(AGREED_MS),
            probe_after_ms: session_ms.min(AGREED_MS) / 2,
            probe_pause_ms: 400,
            redial_pause_ms: 30,
        }
    }
}

/// How often an active controller that watches others must call [`Liveness::tick`]. When much more time has passed it was
/// this controller that stood still, and the brokers are not blamed for it.
pub const TICK_MS: i64 = 100;
/// A longer gap than this between ticks was a standstill.
const STANDSTILL_MS: i64 = 5 * TICK_MS;
/// A verdict that has not come true is repeated after this long.
const REPEAT_MS: i64 = 500;
/// So many probes in a row without an answer say that nobody reaches a broker which is heard.
const MUTE_PROBES: u32 = 2;
/// So many others at least must say so where this controller has never reached the broker.
const MUTE_WITNESSES: usize = 2;
/// For how long a broker that was fenced while it lived is given more time.
const LENIENT_MS: i64 = 60_000;
/// Who has asked to be fenced for so long has a disk that will not be back soon.
const INSISTS_MS: i64 = 10_000;
/// For how long a broker that no probe has ever reached is held for out of reach on the word of others. It is twice as long
/// each time that they say so again, up to [`LENIENT_MS`].
const WORD_MS: i64 = 5_000;
/// What they said longer ago is forgotten.
const WORD_KEPT_MS: i64 = 10 * LENIENT_MS;
/// For how long a broker may take itself for unfenced after it sent a heartbeat that was answered. The controller before
/// this one may have answered one until the election: so a broker that is known from it alone counts as alive for this long.
pub const LEASE_MS: i64 = 2_000;
/// For how long an answer to a follower's fetch may rightly be missing. Witnesses count their silence from the question.
pub const LONG_POLL_MS: i64 = 500;
/// Silence that makes a broker hang, if others agree.
const AGREED_MS: i64 = 2_400;
/// Whom this controller has heard is fenced when its lease is over. Of others it has the witnesses' word, and the part of
/// their silence that is a long poll says nothing about heartbeats: there the election counts as well.
const _: () = assert!(LEASE_MS < AGREED_MS && AGREED_MS < LEASE_MS + LONG_POLL_MS);

/// What is to be done about a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Dial it, ask something, and report to [`Liveness::probed`].
    Probe(NodeId, BrokerEpoch),
    Fence(NodeId, BrokerEpoch, Cause),
}

/// Why a broker is fenced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    #[error("it refuses connections")]
    Refuses,
    #[error("silent for {silent_ms} ms, no answer to a probe, and {witnesses:?} wait for it in vain")]
    Hangs { silent_ms: i64, witnesses: Vec<NodeId> },
    #[error("its heartbeats come, but it answers no probe, and {witnesses:?} wait for it in vain")]
    Unreachable { witnesses: Vec<NodeId> },
    #[error("silent for {silent_ms} ms, which is past broker.session.timeout.ms")]
    SessionExpired { silent_ms: i64 },
}

/// What a probe found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeOutcome {
    Answered,
    /// Nobody listens there.
    Refused,
    /// No answer in time, or none that makes sense.
    Unanswered,
}

/// The active controller's view of all brokers, for one term of office.
#[derive(Debug)]
pub struct Liveness {
    config: LivenessConfig,
    /// The broker in this process: it lives as long as the controller does.
    me: Option<NodeId>,
    contacts: BTreeMap<NodeId, Contact>,
    last_tick: MonotonicMs,
}

impl Liveness {
    /// The view of a controller that was elected just now: every broker gets its time from here on, and is dialled.
    pub fn new(config: LivenessConfig, me: Option<NodeId>, brokers: &Brokers, now: MonotonicMs) -> Liveness {
        let mut liveness = Liveness { config, me, contacts: BTreeMap::new(), last_tick: now };
        liveness.follow(brokers, now);
        for contact in liveness.contacts.values_mut() {
            contact.is_presumed = true;
            contact.lease_ends = now.plus(LEASE_MS);
            if contact.is_watched(me) {
                contact.dial(now);
            }
        }
        liveness
    }

    pub fn configure(&mut self, config: LivenessConfig) {
        self.config = config;
    }

    /// Takes note of who is registered.
    pub fn follow(&mut self, brokers: &Brokers, now: MonotonicMs) {
        self.contacts.retain(|id, _| brokers.get(*id).is_some());
        for broker in brokers.iter() {
            let known = self.contacts.get(&broker.id).is_some_and(|contact| contact.epoch == broker.epoch);
            if !known {
                self.contacts.insert(broker.id, Contact::new(broker.id, broker.epoch, now));
            }
            if let Some(contact) = self.contacts.get_mut(&broker.id) {
                contact.stands(broker.fenced, broker.in_controlled_shutdown, now);
            }
        }
    }

    /// A broker said that it lives, and how much of the metadata it has taken in.
    pub fn heard(&mut self, id: NodeId, epoch: BrokerEpoch, offset: Offset, now: MonotonicMs) {
        let config = self.config;
        if let Some(contact) = self.contact(id, epoch) {
            contact.heard(offset, config, now);
        }
    }

    /// A heartbeat said whether the broker asks to be fenced.
    pub fn asks_for_a_fence(&mut self, id: NodeId, epoch: BrokerEpoch, asks: bool, now: MonotonicMs) {
        if let Some(contact) = self.contact(id, epoch) {
            contact.asks_since = asks.then(|| contact.asks_since.unwrap_or(now));
        }
    }

    /// Whether a broker has asked for long to be fenced.
    pub fn insists_on_a_fence(&self, id: NodeId, epoch: BrokerEpoch, now: MonotonicMs) -> bool {
        let contact = self.contacts.get(&id).filter(|contact| contact.epoch == epoch);
        contact.and_then(|contact| contact.asks_since).is_some_and(|since| now.since(since) >= INSISTS_MS)
    }

    /// Whether a broker that is fenced may be unfenced: somebody can reach it.
    pub fn may_unfence(&self, id: NodeId, epoch: BrokerEpoch, now: MonotonicMs) -> bool {
        let contact = self.contacts.get(&id).filter(|contact| contact.epoch == epoch);
        contact.is_none_or(|contact| contact.may_unfence(now))
    }

    /// A broker opened a connection to this controller.
    pub fn connected(&mut self, id: NodeId, epoch: BrokerEpoch) {
        if let Some(contact) = self.contact(id, epoch) {
            contact.connections += 1;
        }
    }

    /// A connection of a broker is gone.
    pub fn disconnected(&mut self, id: NodeId, epoch: BrokerEpoch, now: MonotonicMs) {
        if let Some(contact) = self.contact(id, epoch) {
            contact.connections = contact.connections.saturating_sub(1);
            if contact.connections == 0 {
                contact.is_lost = true;
                contact.dial(now);
            }
        }
    }

    /// What the probe of a verdict found.
    pub fn probed(&mut self, id: NodeId, epoch: BrokerEpoch, outcome: ProbeOutcome, now: MonotonicMs) {
        let config = self.config;
        if let Some(contact) = self.contact(id, epoch) {
            contact.probed(outcome, config, now);
        }
    }

    /// Whom `witness` waits for in vain, and for how long already. Replaces what it said before.
    pub fn suspected(&mut self, witness: NodeId, silent: &[(NodeId, i64)], now: MonotonicMs) {
        let limit = self.config.agreed_ms;
        for contact in self.contacts.values_mut() {
            contact.witnesses.remove(&witness);
        }
        for &(id, silent_ms) in silent.iter().filter(|(id, _)| *id != witness) {
            if let Some(contact) = self.contacts.get_mut(&id) {
                contact.witnesses.insert(witness);
                contact.silent_elsewhere(now.plus(-silent_ms.clamp(0, limit)));
            }
        }
    }

    /// Whether the process that is registered under this id and epoch must be taken to be alive.
    pub fn is_alive(&self, id: NodeId, epoch: BrokerEpoch, now: MonotonicMs) -> bool {
        let Some(contact) = self.contacts.get(&id).filter(|contact| contact.epoch == epoch) else {
            return false;
        };
        if contact.is_presumed && (Some(id) == self.me || !contact.is_active()) {
            // Of this very node it was an earlier process, and whoever is fenced has no need to hurry.
            return false;
        }
        let limit = if contact.is_presumed { LEASE_MS } else { self.config.session_ms };
        Some(id) == self.me || !contact.is_lost && now.since(contact.last_heard) < limit
    }

    /// Whether a broker in controlled shutdown may go: every other active broker has taken in the metadata as it was when
    /// this was first asked, with the leaders that replaced it.
    pub fn others_caught_up(&mut self, id: NodeId, epoch: BrokerEpoch, applied: Offset) -> bool {
        let Some(contact) = self.contact(id, epoch) else { return false };
        let bound = *contact.leaves_at.get_or_insert(applied);
        let mut others = self.contacts.iter().filter(|(other, contact)| **other != id && contact.is_active());
        others.all(|(_, contact)| contact.metadata_offset >= bound)
    }

    /// Whether a broker for which there was a verdict is condemned still: nothing has spoken for it since.
    pub fn condemns(&self, id: NodeId, epoch: BrokerEpoch, now: MonotonicMs) -> bool {
        let witnesses = self.credible_witnesses(now);
        let contact = self.contacts.get(&id).filter(|contact| contact.epoch == epoch);
        contact.is_some_and(|contact| contact.is_condemned(self.config, &witnesses, now))
    }

    /// Whether there is anybody to watch.
    pub fn watches(&self) -> bool {
        self.contacts.values().any(|contact| contact.is_watched(self.me))
    }

    /// Time has passed.
    pub fn tick(&mut self, now: MonotonicMs) -> Vec<Verdict> {
        let gap = now.since(self.last_tick);
        self.last_tick = now;
        if gap > STANDSTILL_MS {
            for contact in self.contacts.values_mut() {
                contact.excuse(gap - TICK_MS, now);
            }
        }
        let witnesses = self.credible_witnesses(now);
        let (me, config) = (self.me, self.config);
        let watched = self.contacts.values_mut().filter(|contact| contact.is_watched(me));
        watched.filter_map(|contact| contact.judge(config, &witnesses, now)).collect()
    }

    /// The active brokers that have been heard themselves.
    fn credible_witnesses(&self, now: MonotonicMs) -> Vec<NodeId> {
        let is_credible = |(id, contact): (&NodeId, &Contact)| {
            let heard = !contact.is_presumed && now.since(contact.last_heard) < self.config.agreed_ms;
            (contact.is_active() && (heard || Some(*id) == self.me)).then_some(*id)
        };
        self.contacts.iter().filter_map(is_credible).collect()
    }

    fn contact(&mut self, id: NodeId, epoch: BrokerEpoch) -> Option<&mut Contact> {
        self.contacts.get_mut(&id).filter(|contact| contact.epoch == epoch)
    }
}
