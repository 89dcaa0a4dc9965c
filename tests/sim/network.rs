//! The network: what is sent arrives late, twice or never, and who is cut off from whom hears nothing. Must not know what
//! the messages mean.
//!
//! Invariant: whether something arrives is decided when it is sent; what is under way when a cut begins still arrives.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use super::chance::Chance;
use super::context::Ms;
use super::controller::{Answer, Request};
use super::plan::Plan;
use super::replication::{Fetch, FetchAnswer};
use crate::api::transactional::{Candidate, Transaction};
use crate::broker::messages::Produced;
use crate::coordinator::group::command::CommitOffsets;
use crate::coordinator::group::{self, Name};
use crate::coordinator::transaction;
use crate::metadata::Image;
use crate::metadata::liveness::ProbeOutcome;
use crate::replica::Acks;
use crate::types::{BrokerEpoch, ErrorCode, LeaderEpoch, NodeId, TopicIdPartition};
use crate::wire::messages::add_partitions_to_txn_response::AddPartitionsToTxnResponse;
use crate::wire::messages::write_txn_markers_response::WriteTxnMarkersResponse;
use crate::wire::messages::{AddPartitionsToTxnRequest, FetchRequest, FetchResponse, WriteTxnMarkersRequest};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    Node(i32),
    Controller(usize),
    Clients,
}

#[derive(Clone, Debug)]
pub struct Packet {
    pub from: Place,
    pub to: Place,
    pub body: Body,
}

#[derive(Clone, Debug)]
pub enum Body {
    /// To the controllers; `call` names it for the answer.
    Call {
        caller: Caller,
        call: u64,
        request: Request,
    },
    /// With the metadata that it speaks of.
    Answer {
        caller: Caller,
        call: u64,
        image: Arc<Image>,
        answer: Answer,
    },
    /// Asks for the newest metadata.
    Poll,
    /// What there is of the metadata, and who leads in which term.
    Published {
        image: Arc<Image>,
        term: u64,
        leader: usize,
    },
    /// A controller wants to know whether a process is there.
    Probe(u64),
    Probed {
        probe: u64,
        outcome: ProbeOutcome,
    },
    /// A broker gives up its connection to a controller.
    Closed(NodeId, BrokerEpoch),
    Produce(ProduceRequest),
    Produced {
        producer: usize,
        attempt: u64,
        result: Result<Produced, ProduceRefusal>,
    },
    /// From a follower to its leader, and back.
    Fetch(Fetch),
    Fetched(FetchAnswer),
    /// From a client to a coordinator, or to the leader of a partition of a transaction, and back.
    Ask(Box<Ask>),
    Told {
        client: usize,
        call: u64,
        told: Told,
    },
    /// From a broker to another about a transaction, and back.
    PeerAsk(PeerAsk),
    PeerTold {
        call: u64,
        told: PeerTold,
    },
    /// From a broker to another, for records in place of damaged ones, and back.
    AskRecords {
        node: i32,
        call: u64,
        request: FetchRequest,
    },
    Records {
        call: u64,
        response: FetchResponse,
    },
}

/// Who has called: a process, or the administrator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    Process { node: i32, life: u64 },
    Admin,
}

#[derive(Clone, Debug)]
pub struct ProduceRequest {
    pub producer: usize,
    /// Names the attempt for the answer.
    pub attempt: u64,
    /// Which of the producer's batches it is, and on which of its connections it comes.
    pub number: u64,
    pub connection: u64,
    pub partition: TopicIdPartition,
    pub acks: Acks,
    pub records: Bytes,
}

/// What a producer makes of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProduceRefusal {
    /// Try again, maybe elsewhere.
    Again,
    /// The sequence number is not the next.
    OutOfOrder,
    /// This will never do.
    Never,
}

/// What a broker has answered to a producer's batch that it has not taken.
#[derive(Clone, Copy, Debug)]
pub struct Refused {
    pub producer: usize,
    pub number: u64,
    pub connection: u64,
    pub why: ProduceRefusal,
}

#[derive(Clone, Debug)]
pub struct Ask {
    pub client: usize,
    /// Names the attempt for the answer.
    pub call: u64,
    pub asking: Asking,
}

#[derive(Clone, Debug)]
pub enum Asking {
    Transaction { transactional_id: String, command: transaction::Command },
    Group { group: Name, command: group::Command },
    CommitInTransaction { transaction: Transaction, adds: bool, commit: CommitOffsets },
    Produce { transaction: Transaction, adds: bool, batch: Candidate },
}

#[derive(Clone, Debug)]
pub enum Told {
    Transaction(Result<transaction::Reply, ErrorCode>),
    /// In which term of the coordinator.
    Group(Result<group::Reply, ErrorCode>, LeaderEpoch),
    Produced(Result<Produced, ErrorCode>),
}

#[derive(Clone, Debug)]
pub struct PeerAsk {
    pub node: i32,
    pub call: u64,
    pub asking: PeerAsking,
}

#[derive(Clone, Debug)]
pub enum PeerAsking {
    Markers(WriteTxnMarkersRequest),
    Partitions(AddPartitionsToTxnRequest),
}

#[derive(Clone, Debug)]
pub enum PeerTold {
    Markers(WriteTxnMarkersResponse),
    Partitions(AddPartitionsToTxnResponse),
}

#[derive(Debug)]
pub struct Network {
    lost: u32,
    twice: u32,
    delay_max_ms: Ms,
    /// Who does not hear whom: (from, to).
    pub cuts: BTreeSet<(Place, Place)>,
}

impl Network {
    pub fn new(plan: &Plan) -> Network {
        let Plan { lost, twice, delay_max_ms, .. } = *plan;
        Network { lost, twice, delay_max_ms, cuts: BTreeSet::new() }
    }

    /// When what is sent now arrives: each time that it does.
    pub fn fate(&self, from: Place, to: Place, calm: bool, chance: &mut Chance) -> Vec<Ms> {
        if calm {
            return vec![chance.between(0, 2)];
        }
        if self.cuts.contains(&(from, to)) || chance.permille(self.lost) {
            return Vec::new();
        }
        let delay = |chance: &mut Chance| {
            let slow = if chance.permille(20) { 20 } else { 1 };
            chance.between(0, self.delay_max_ms * slow)
        };
        let mut arrivals = vec![delay(chance)];
        if chance.permille(self.twice) {
            arrivals.push(delay(chance));
        }
        arrivals
    }
}
