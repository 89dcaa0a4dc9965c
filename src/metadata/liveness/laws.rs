//! The law of verdicts: whoever is condemned stays so until something speaks for it, and not longer. Whatever happens between a
//! verdict and the decision that follows from it.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::metadata::brokers::Brokers;
use crate::wire::messages::metadata::RegisterBrokerRecord;

const BROKERS: i32 = 3;
const EPOCH: BrokerEpoch = BrokerEpoch(7);

#[derive(Clone, Debug)]
enum Event {
    Heard(NodeId),
    Connected(NodeId),
    Disconnected(NodeId),
    Probed(NodeId, ProbeOutcome),
    Waits(NodeId, Vec<NodeId>),
    /// The controller looks again after so long.
    Ticks(i64),
    StandsStill(i64),
}

fn event() -> impl Strategy<Value = Event> {
    let node = || (1..=BROKERS).prop_map(NodeId);
    let outcome = prop_oneof![
        Just(ProbeOutcome::Answered),
        Just(ProbeOutcome::Refused),
        Just(ProbeOutcome::Unanswered)
    ];
    prop_oneof![
        3 => node().prop_map(Event::Heard),
        1 => node().prop_map(Event::Connected),
        2 => node().prop_map(Event::Disconnected),
        5 => (node(), outcome).prop_map(|(node, outcome)| Event::Probed(node, outcome)),
        2 => (node(), prop::collection::vec(node(), 0..3)).prop_map(|(node, others)| Event::Waits(node, others)),
        6 => (1..=4 * TICK_MS).prop_map(Event::Ticks),
        1 => (STANDSTILL_MS..5_000).prop_map(Event::StandsStill),
    ]
}

fn brokers() -> Brokers {
    let mut brokers = Brokers::default();
    for broker_id in 1..=BROKERS {
        let record = RegisterBrokerRecord { broker_id, broker_epoch: EPOCH.0, ..Default::default() };
        brokers.register(&record);
    }
    brokers
}

proptest! {
    #[test]
    fn a_verdict_stands_until_something_speaks_for_the_broker(events in prop::collection::vec(event(), 1..200)) {
        let mut now = MonotonicMs(0);
        let mut liveness = Liveness::new(LivenessConfig::new(4_000), None, &brokers(), now);
        // The verdicts for which nothing has been said to the contrary.
        let mut standing: BTreeMap<NodeId, Cause> = BTreeMap::new();
        for event in events {
            match event {
                Event::Heard(id) => {
                    liveness.heard(id, EPOCH, Offset(0), now);
                    // Of whom nobody can call it is known that it lives.
                    standing.retain(|of, cause| *of != id || matches!(cause, Cause::Unreachable { .. }));
                }
                Event::Probed(id, outcome) => {
                    liveness.probed(id, EPOCH, outcome, now);
                    let answers = outcome == ProbeOutcome::Answered;
                    standing.retain(|of, cause| !(answers && *of == id && matches!(cause, Cause::Unreachable { .. })));
                }
                Event::Connected(id) => liveness.connected(id, EPOCH),
                Event::Disconnected(id) => liveness.disconnected(id, EPOCH, now),
                Event::Waits(id, others) => {
                    let silent: Vec<(NodeId, i64)> = others.into_iter().map(|other| (other, 1_000)).collect();
                    liveness.suspected(id, &silent, now);
                }
                Event::Ticks(ms) | Event::StandsStill(ms) => {
                    now = now.plus(ms);
                    for verdict in liveness.tick(now) {
                        if let Verdict::Fence(id, epoch, cause) = verdict {
                            prop_assert!(liveness.condemns(id, epoch, now), "{id} is condemned for {cause}");
                            standing.insert(id, cause);
                        }
                    }
                }
            }
            for id in (1..=BROKERS).map(NodeId) {
                prop_assert!(!liveness.condemns(id, EPOCH, now) || standing.contains_key(&id), "{id} was acquitted");
                prop_assert!(!liveness.condemns(id, BrokerEpoch(8), now), "another process");
            }
        }
    }
}

/// How often a broker says that it lives, and how long that may be on its way.
const HEARTBEAT_MS: i64 = 250;
const LATE_MS: i64 = 100;
/// How long a broker that runs takes to answer, and how long a probe waits for it.
const ANSWER_MS: i64 = 20;
const PROBE_MS: i64 = 400;
/// Silence that a witness tells of.
const WITNESS_MS: i64 = 1_500;
/// As long as a broker may stand still without being fenced.
const STANDS_MS: i64 = 2_000;

/// How a broker goes on: it runs, and then stands still, when others have waited for its answer for a while already.
#[derive(Clone, Debug)]
struct Stall {
    runs_ms: i64,
    stands_ms: i64,
    waited_ms: [i64; 2],
}

fn stall() -> impl Strategy<Value = Stall> {
    let waited = || 0..=LONG_POLL_MS;
    (100..3_000_i64, 0..=STANDS_MS, waited(), waited()).prop_map(|(runs_ms, stands_ms, one, other)| Stall {
        runs_ms,
        stands_ms,
        waited_ms: [one, other],
    })
}

/// The times at which a broker stands still, each with how long others have waited before.
fn standstills(stalls: &[Stall]) -> Vec<(i64, i64, [i64; 2])> {
    let mut at = 0;
    let standstill = |stall: &Stall| {
        let from = at + stall.runs_ms;
        at = from + stall.stands_ms;
        (from, at, stall.waited_ms)
    };
    stalls.iter().map(standstill).collect()
}

proptest! {
    /// What processes that are stopped for two seconds can show only now and then: in whichever moment it happens, and however
    /// late heartbeats come, nobody is fenced for it.
    #[test]
    fn whoever_stands_still_for_two_seconds_is_not_fenced(
        stalls in prop::collection::vec(stall(), 1..6),
        phases in prop::array::uniform3(0..HEARTBEAT_MS),
        tick_phase in 0..TICK_MS,
        late in prop::collection::vec(0..=LATE_MS, 1..20),
    ) {
        let standstills = standstills(&stalls);
        // When a broker that is to do something at this time does it.
        let runs_at = |time: i64| {
            let standing = standstills.iter().find(|(from, to, _)| (*from..*to).contains(&time));
            standing.map_or(time, |(_, to, _)| *to)
        };
        let slow = NodeId(2);
        let mut liveness = Liveness::new(LivenessConfig::new(9_000), Some(NodeId(1)), &brokers(), MonotonicMs(0));
        let end = standstills.last().map_or(0, |(_, to, _)| to + 3_000);
        let (mut beats_at, mut beats, mut heard_at) = (phases[0], 0, BTreeSet::new());
        while beats_at < end {
            let sent = runs_at(beats_at);
            heard_at.insert(sent + late[beats % late.len()]);
            (beats_at, beats) = (sent + HEARTBEAT_MS, beats + 1);
        }
        let mut probes: Vec<(i64, ProbeOutcome)> = Vec::new();
        for at in 0..end {
            let now = MonotonicMs(at);
            if heard_at.contains(&at) {
                liveness.heard(slow, EPOCH, Offset(0), now);
            }
            for (witness, id) in [NodeId(1), NodeId(3)].into_iter().enumerate() {
                if at % HEARTBEAT_MS != phases[witness + 1] {
                    continue;
                }
                liveness.heard(id, EPOCH, Offset(0), now);
                let waits = standstills.iter().find(|(from, to, waited)| {
                    (from - waited[witness] + WITNESS_MS..to + ANSWER_MS).contains(&at)
                });
                let silent = waits.map(|(from, _, waited)| (slow, at - from + waited[witness]));
                liveness.suspected(id, silent.as_slice(), now);
            }
            probes.retain(|(due, outcome)| {
                if *due == at {
                    liveness.probed(slow, EPOCH, *outcome, now);
                }
                *due > at
            });
            if at % TICK_MS != tick_phase {
                continue;
            }
            for verdict in liveness.tick(now) {
                match verdict {
                    Verdict::Probe(id, _) if id == slow => {
                        let answered = runs_at(at) + ANSWER_MS;
                        let given_up = at + PROBE_MS;
                        probes.push(match answered <= given_up {
                            true => (answered, ProbeOutcome::Answered),
                            false => (given_up, ProbeOutcome::Unanswered),
                        });
                    }
                    Verdict::Probe(id, epoch) => liveness.probed(id, epoch, ProbeOutcome::Answered, now),
                    Verdict::Fence(id, _, cause) => prop_assert!(false, "{id} is fenced at {at}: {cause}"),
                }
            }
        }
    }
}
