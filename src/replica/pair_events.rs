//! What may happen in the property tests of leaders and followers together (`pair_laws`), in any order. Knows nothing of
//! what it leads to. Invariant: each event names a node that there is.

use proptest::prelude::*;

/// The nodes of the property tests, each of which has a replica.
pub(super) const NODES: usize = 3;

#[derive(Clone, Debug)]
pub(super) enum Event {
    Append {
        records: u8,
    },
    Flush {
        node: usize,
        all: bool,
    },
    /// The node sends what it wants to its leader, on top of what is under way.
    Send {
        node: usize,
    },
    /// The oldest question of the node reaches its leader.
    Deliver {
        node: usize,
        max_records: usize,
    },
    /// What the node has flushed goes to its leader beside the questions, and may overtake them and be overtaken.
    Report {
        node: usize,
    },
    DeliverReport {
        node: usize,
    },
    /// The oldest answer reaches the node.
    Answer {
        node: usize,
    },
    Drop {
        node: usize,
    },
    Crash {
        node: usize,
    },
    Restart {
        node: usize,
    },
    Elect {
        node: usize,
    },
    /// The node hears of the present metadata.
    Metadata {
        node: usize,
    },
    Alter {
        node: usize,
        unknown: bool,
    },
    Pass {
        ms: i64,
    },
    DeleteRecords,
}

pub(super) fn events() -> impl Strategy<Value = Vec<Event>> {
    let node = 0..NODES;
    let event = prop_oneof![
        4 => (1..4u8).prop_map(|records| Event::Append { records }),
        6 => (node.clone(), any::<bool>()).prop_map(|(node, all)| Event::Flush { node, all }),
        12 => node.clone().prop_map(|node| Event::Send { node }),
        12 => (node.clone(), 1..5usize).prop_map(|(node, max_records)| Event::Deliver { node, max_records }),
        12 => node.clone().prop_map(|node| Event::Answer { node }),
        4 => node.clone().prop_map(|node| Event::Report { node }),
        4 => node.clone().prop_map(|node| Event::DeliverReport { node }),
        1 => node.clone().prop_map(|node| Event::Drop { node }),
        1 => node.clone().prop_map(|node| Event::Crash { node }),
        2 => node.clone().prop_map(|node| Event::Restart { node }),
        2 => node.clone().prop_map(|node| Event::Elect { node }),
        6 => node.clone().prop_map(|node| Event::Metadata { node }),
        2 => (node, any::<bool>()).prop_map(|(node, unknown)| Event::Alter { node, unknown }),
        2 => (1..400i64).prop_map(|ms| Event::Pass { ms }),
        1 => Just(Event::DeleteRecords),
    ];
    proptest::collection::vec(event, 1..250)
}
