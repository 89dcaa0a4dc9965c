//! The coordinators of a broker, put together: those of groups and of transactions, with what carries the decisions of the latter
//! to other brokers and what asks them.
//!
//! Must not know requests. Invariant: whatever coordinates here lives as long as its tasks.

use std::sync::Arc;

use tokio::task::JoinHandle;

use super::coordinators::{self, Coordinators, Keeper, KeeperParts};
use super::producer_ids::ProducerIds;
use super::transactions::{MarkerSender, MarkerWriter, Peers, TransactionInquiry};
use crate::coordinator::group::Groups;
use crate::coordinator::transaction::Transactions;

/// The coordinators that are here, and the ways to those that are not.
#[derive(Clone, Debug)]
pub struct Coordination {
    pub groups: Coordinators<Groups>,
    pub transactions: Coordinators<Transactions>,
    /// Asks the coordinators of transactions, wherever they are.
    pub inquiry: TransactionInquiry,
    /// Writes the markers of coordinators to what is led here.
    pub markers: MarkerWriter,
}

impl Coordination {
    /// Starts everything. `listener` is that through which brokers reach each other.
    pub fn start(
        keeping: KeeperParts,
        listener: &Arc<str>,
        producer_ids: ProducerIds,
        tasks: &mut Vec<JoinHandle<()>>,
    ) -> Coordination {
        let KeeperParts { me, metadata, config, partitions, .. } = keeping.clone();
        let peers = |purpose: &str| {
            Peers::new(format!("broker-{me}-{purpose}"), Arc::clone(listener), metadata.clone())
        };
        let groups = Coordinators::new(coordinators::groups::kind(config.clone()));
        let configuring =
            coordinators::groups::configure(groups.clone(), config.clone(), metadata.subscribe());
        let (kind, effects) = coordinators::transactions::kind(config);
        let transactions = Coordinators::new(kind);
        let markers = MarkerWriter { partitions: partitions.clone(), groups: groups.clone() };
        let here = (me, metadata.subscribe(), partitions);
        let sender =
            MarkerSender::new(here, transactions.clone(), markers.clone(), peers("markers"), producer_ids);
        let inquiry = TransactionInquiry {
            me,
            images: metadata.subscribe(),
            transactions: transactions.clone(),
            peers: peers("inquiry"),
        };
        tasks.extend([
            tokio::spawn(configuring),
            tokio::spawn(sender.run(effects)),
            tokio::spawn(Keeper::new(groups.clone(), keeping.clone()).run()),
            tokio::spawn(Keeper::new(transactions.clone(), keeping).run()),
        ]);
        Coordination { groups, transactions, inquiry, markers }
    }
}
