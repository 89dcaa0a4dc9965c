//! The law of verdicts: whoever is condemned stays so until something speaks for it, and not longer. Whatever happens between a
//! verdict and the decision that follows from it.

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
