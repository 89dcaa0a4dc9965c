//! What an active controller knows of one broker in one epoch. Invariant: a sign of life takes back everything that spoke
//! against the broker, except that it has once been fenced while it lived, and that nobody can reach it.

use super::{
    Cause, LENIENT_MS, LivenessConfig, MUTE_PROBES, MUTE_WITNESSES, ProbeOutcome, REPEAT_MS, Verdict,
    WORD_KEPT_MS, WORD_MS,
};
use crate::types::{BrokerEpoch, MonotonicMs, NodeId, Offset};
use std::collections::BTreeSet;

#[derive(Debug)]
pub(super) struct Contact {
    id: NodeId,
    pub(super) epoch: BrokerEpoch,
    is_fenced: bool,
    is_leaving: bool,
    pub(super) last_heard: MonotonicMs,
    /// Not heard by this controller yet: `last_heard` is when it was elected.
    pub(super) is_presumed: bool,
    /// Until then a presumed one may hold a lease from the controller before this one.
    pub(super) lease_ends: MonotonicMs,
    /// Its last connection broke and nothing was heard since.
    pub(super) is_lost: bool,
    pub(super) connections: usize,
    /// The last metadata record that it has taken in.
    pub(super) metadata_offset: Offset,
    /// What others must have taken in before it may go.
    pub(super) leaves_at: Option<Offset>,
    /// Who waits for it in vain.
    pub(super) witnesses: BTreeSet<NodeId>,
    probe: Probe,
    /// The last probe since it was heard was not answered.
    is_mute: bool,
    /// Refused dials in a row.
    refusals: u32,
    /// It is to be fenced, and a verdict said so at this time.
    condemned: Option<(Cause, MonotonicMs)>,
    /// It was fenced for silence and then showed that it lived.
    lenient_until: Option<MonotonicMs>,
    was_taken_for_hanging: bool,
    reach: Reach,
    /// It has asked to be fenced ever since.
    pub(super) asks_since: Option<MonotonicMs>,
}

/// Whether a broker that is heard can be called as well.
#[derive(Debug, Default)]
struct Reach {
    /// A probe was answered once, so this controller has a way to the broker.
    was_there: bool,
    /// Probes without an answer in a row, while it was heard.
    unanswered: u32,
    /// It was fenced because nobody reached it, and nobody has since.
    lost_since: Option<MonotonicMs>,
    /// When that was the last time, and for how long it is held against it.
    lost: Option<(MonotonicMs, i64)>,
    /// When a probe found something or nothing the last time.
    tried_at: Option<MonotonicMs>,
}

impl Reach {
    fn lose(&mut self, now: MonotonicMs) {
        let held_ms = match self.lost {
            _ if self.was_there => LENIENT_MS,
            Some((at, held_ms)) if now.since(at) < WORD_KEPT_MS => (held_ms * 2).min(LENIENT_MS),
            _ => WORD_MS,
        };
        (self.lost_since, self.lost) = (Some(now), Some((now, held_ms)));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probe {
    /// When silence asks for it.
    Idle,
    Due(MonotonicMs),
    UnderWay,
}

impl Contact {
    pub(super) fn new(id: NodeId, epoch: BrokerEpoch, now: MonotonicMs) -> Contact {
        Contact {
            id,
            epoch,
            is_fenced: true,
            is_leaving: false,
            last_heard: now,
            is_presumed: false,
            lease_ends: now,
            is_lost: false,
            connections: 0,
            metadata_offset: Offset::UNKNOWN,
            leaves_at: None,
            witnesses: BTreeSet::new(),
            probe: Probe::Idle,
            is_mute: false,
            refusals: 0,
            condemned: None,
            lenient_until: None,
            was_taken_for_hanging: false,
            reach: Reach::default(),
            asks_since: None,
        }
    }

    /// What the metadata says of it.
    pub(super) fn stands(&mut self, is_fenced: bool, is_leaving: bool, now: MonotonicMs) {
        if is_fenced && !self.is_fenced {
            let condemned = self.condemned.take();
            self.was_taken_for_hanging = matches!(condemned, Some((Cause::Hangs { .. }, _)));
            self.reach.lost_since = None;
            if matches!(condemned, Some((Cause::Unreachable { .. }, _))) {
                self.reach.lose(now);
            }
        }
        if !is_fenced && self.is_fenced {
            (self.reach.lost_since, self.reach.unanswered) = (None, 0);
        }
        if is_fenced || !is_leaving {
            self.leaves_at = None;
        }
        (self.is_fenced, self.is_leaving) = (is_fenced, is_leaving);
    }

    pub(super) fn is_watched(&self, me: Option<NodeId>) -> bool {
        (!self.is_fenced || self.reach.lost_since.is_some()) && Some(self.id) != me
    }

    /// Whether it may be unfenced: it is not known that nobody reaches it. That is forgotten after a while, for it may be
    /// this controller alone that does not.
    pub(super) fn may_unfence(&self, now: MonotonicMs) -> bool {
        let held_ms = self.reach.lost.map_or(LENIENT_MS, |(_, held_ms)| held_ms);
        self.reach.lost_since.is_none_or(|since| now.since(since) >= held_ms)
    }

    pub(super) fn is_active(&self) -> bool {
        !self.is_fenced && !self.is_leaving
    }

    pub(super) fn heard(&mut self, offset: Offset, config: LivenessConfig, now: MonotonicMs) {
        // Twice the patience would have been enough: it was slow.
        let was_slow = now.since(self.last_heard) < config.agreed_ms.saturating_mul(2);
        if std::mem::take(&mut self.was_taken_for_hanging) && was_slow {
            self.lenient_until = Some(now.plus(LENIENT_MS));
        }
        self.last_heard = now;
        self.metadata_offset = offset;
        (self.is_presumed, self.is_lost, self.is_mute) = (false, false, false);
        self.refusals = 0;
        // That it is heard speaks against every other cause; the verdict may be on its way into the log already.
        self.condemned.take_if(|(cause, _)| !matches!(cause, Cause::Unreachable { .. }));
        if let Probe::Due(_) = self.probe {
            self.probe = Probe::Idle;
        }
    }

    /// Asks for a dial at this time, unless one is under way.
    pub(super) fn dial(&mut self, at: MonotonicMs) {
        self.refusals = 0;
        if self.probe != Probe::UnderWay {
            self.probe = Probe::Due(at);
        }
    }

    pub(super) fn probed(&mut self, outcome: ProbeOutcome, config: LivenessConfig, now: MonotonicMs) {
        if outcome == ProbeOutcome::Answered {
            self.reach = Reach { was_there: true, ..Reach::default() };
            self.condemned.take_if(|(cause, _)| matches!(cause, Cause::Unreachable { .. }));
        } else if self.beats(config, now) {
            self.reach.unanswered += 1;
        }
        self.reach.tried_at = Some(now);
        if self.beats(config, now) && !self.is_lost {
            // It is there, whatever has kept the probe from reaching it.
            self.probe = Probe::Idle;
            return;
        }
        self.is_mute = outcome != ProbeOutcome::Answered;
        match outcome {
            ProbeOutcome::Refused => {
                self.refusals += 1;
                self.probe = Probe::Due(now.plus(config.redial_pause_ms));
            }
            ProbeOutcome::Answered | ProbeOutcome::Unanswered => {
                self.refusals = 0;
                self.probe = Probe::Due(now.plus(config.probe_pause_ms));
            }
        }
    }

    /// Another broker has not heard it since then. Before this controller has heard it, that is all it knows.
    pub(super) fn silent_elsewhere(&mut self, since: MonotonicMs) {
        if self.is_presumed {
            self.last_heard = self.last_heard.min(since);
        }
    }

    /// Time during which nobody could be heard does not count.
    pub(super) fn excuse(&mut self, gap_ms: i64, now: MonotonicMs) {
        self.last_heard = self.last_heard.plus(gap_ms).min(now);
        self.is_mute = false;
    }

    /// Whether its heartbeats come as they should.
    fn beats(&self, config: LivenessConfig, now: MonotonicMs) -> bool {
        !self.is_presumed && now.since(self.last_heard) < config.probe_after_ms
    }

    pub(super) fn judge(
        &mut self,
        config: LivenessConfig,
        credible: &[NodeId],
        now: MonotonicMs,
    ) -> Option<Verdict> {
        let is_missed = self.beats(config, now) && self.most_wait_in_vain(credible);
        if !is_missed && self.reach.lost_since.is_none() {
            self.reach.unanswered = 0;
        }
        if let Some(cause) = self.cause(config, credible, now) {
            let repeats = match &self.condemned {
                Some((_, at)) => now.since(*at) >= REPEAT_MS,
                None => true,
            };
            return repeats.then(|| {
                self.condemned = Some((cause.clone(), now));
                Verdict::Fence(self.id, self.epoch, cause)
            });
        }
        let is_due = match self.probe {
            Probe::Idle => now.since(self.last_heard) >= config.probe_after_ms,
            Probe::Due(at) => {
                now >= at && (self.needs_probe() || now.since(self.last_heard) >= config.probe_after_ms)
            }
            Probe::UnderWay => false,
        };
        let seeks_it = self.probe != Probe::UnderWay && self.seeks(is_missed, config, now);
        (is_due || seeks_it).then(|| {
            self.probe = Probe::UnderWay;
            Verdict::Probe(self.id, self.epoch)
        })
    }

    /// Whether it is to be seen that the broker can be reached, although it is heard: somebody doubts it, or it is not known
    /// whether there is a way at all.
    fn seeks(&self, is_missed: bool, config: LivenessConfig, now: MonotonicMs) -> bool {
        let doubted = is_missed || self.reach.lost_since.is_some();
        match self.reach.tried_at {
            None => true,
            Some(at) if doubted => now.since(at) >= config.probe_pause_ms,
            Some(at) => !self.reach.was_there && now.since(at) >= LENIENT_MS,
        }
    }

    /// Whether it is missed by most of the others, who are heard themselves.
    fn most_wait_in_vain(&self, credible: &[NodeId]) -> bool {
        let others = credible.iter().filter(|id| **id != self.id).count();
        let waiting = credible.iter().filter(|id| self.witnesses.contains(id)).count();
        waiting > 0 && waiting * 2 > others
    }

    /// Whether there is a reason to dial it other than silence.
    fn needs_probe(&self) -> bool {
        self.is_lost || self.is_presumed || self.refusals > 0
    }

    /// Whether a verdict against it stands.
    pub(super) fn is_condemned(&self, config: LivenessConfig, credible: &[NodeId], now: MonotonicMs) -> bool {
        self.condemned.is_some() && self.cause(config, credible, now).is_some()
    }

    fn cause(&self, config: LivenessConfig, credible: &[NodeId], now: MonotonicMs) -> Option<Cause> {
        let silent_ms = now.since(self.last_heard);
        if self.is_fenced {
            return None;
        }
        if self.refusals >= 2 {
            return Some(Cause::Refuses);
        }
        if self.is_presumed && now < self.lease_ends {
            return None;
        }
        if silent_ms >= config.session_ms {
            return Some(Cause::SessionExpired { silent_ms });
        }
        let lenient = self.lenient_until.is_some_and(|until| now < until);
        let patience = if lenient { config.agreed_ms.saturating_mul(2) } else { config.agreed_ms };
        let witnesses: Vec<NodeId> =
            self.witnesses.iter().filter(|id| credible.contains(id)).copied().collect();
        // A controller that has found no way to it, perhaps because it leads only since then, takes the word of all others.
        let others = credible.iter().filter(|id| **id != self.id).count();
        let all_agree = witnesses.len() >= MUTE_WITNESSES && witnesses.len() == others;
        if (self.reach.was_there || all_agree) && self.reach.unanswered >= MUTE_PROBES {
            return Some(Cause::Unreachable { witnesses });
        }
        let hangs = silent_ms >= patience && self.is_mute && !witnesses.is_empty();
        hangs.then_some(Cause::Hangs { silent_ms, witnesses })
    }
}
