//! What handlers use of this node's broker, which a node that is only a controller lacks.
//!
//! Invariant: it is complete when it exists; a broker listener answers nothing before.

use std::sync::Arc;

use super::fetch::FetchSessions;
use crate::broker::coordination::Coordination;
use crate::broker::coordinators::Coordinators;
use crate::broker::departures::Departures;
use crate::broker::dynamic_config::DynamicConfig;
use crate::broker::hurries::Hurries;
use crate::broker::log_dirs::LogDirs;
use crate::broker::moves::Moves;
use crate::broker::partitions::Partitions;
use crate::broker::peer_silence::PeerSilence;
use crate::broker::producer_ids::ProducerIds;
use crate::broker::reconciler::Reconciled;
use crate::broker::start::BrokerHandles;
use crate::broker::throttles::ReplicationThrottle;
use crate::broker::transactions::{MarkerWriter, TransactionInquiry};
use crate::coordinator::group::Groups;
use crate::coordinator::transaction::Transactions;

/// A fetch session that was used so recently is not pushed out by another of its kind; Kafka's fixed value.
const FETCH_SESSION_EVICTION_MS: i64 = 120_000;

pub struct BrokerPart {
    pub partitions: Partitions,
    pub producer_ids: ProducerIds,
    pub reconciled: Reconciled,
    pub log_dirs: Arc<LogDirs>,
    pub moves: Moves,
    pub groups: Coordinators<Groups>,
    pub transactions: Coordinators<Transactions>,
    /// Asks the coordinators of transactions, wherever they are.
    pub inquiry: TransactionInquiry,
    /// Writes the markers of coordinators to what is led here.
    pub markers: MarkerWriter,
    pub fetch_sessions: FetchSessions,
    /// From whom an answer or a fetch is due.
    pub silence: PeerSilence,
    /// Which followers cannot wait for their answers.
    pub hurries: Hurries,
    /// Who has left the cluster a moment ago.
    pub departures: Departures,
    /// What leaders here may send to replicas that are throttled.
    pub throttle: ReplicationThrottle,
}

impl BrokerPart {
    pub fn new(handles: BrokerHandles, config: &Arc<DynamicConfig>) -> BrokerPart {
        let settings = &config.latest().broker;
        let BrokerHandles {
            partitions, producer_ids, reconciled, log_dirs, moves, silence, departures, ..
        } = handles;
        let Coordination { groups, transactions, inquiry, markers } = handles.coordination;
        let slots = usize::try_from(settings.max_incremental_fetch_session_cache_slots).unwrap_or(0);
        let throttle = ReplicationThrottle::of_leaders(Arc::clone(config));
        let fetch_sessions = FetchSessions::new(slots, FETCH_SESSION_EVICTION_MS);
        BrokerPart {
            partitions,
            producer_ids,
            reconciled,
            log_dirs,
            moves,
            groups,
            transactions,
            inquiry,
            markers,
            silence,
            hurries: Hurries::default(),
            departures,
            fetch_sessions,
            throttle,
        }
    }
}
