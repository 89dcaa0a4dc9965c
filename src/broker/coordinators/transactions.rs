//! The coordinators of transactions: what they are configured with, where their log is, and where their effects go.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::super::dynamic_config::DynamicConfig;
use super::Kind;
use crate::config::BrokerConfig;
use crate::coordinator::transaction::{Effect, Settings, Transactions};
use crate::metadata::topics::name::TRANSACTION_STATE;
use crate::types::PartitionIndex;
use crate::wire::compression::Compression;

/// How long a reply may wait for its records to be committed. Kafka waits for the time that the transaction may take; a
/// client is better told to ask again.
const COMMIT_TIMEOUT_MS: i64 = 30_000;

/// The effects of the coordinators of transactions, with the partition of each.
pub type Effects = mpsc::UnboundedReceiver<(PartitionIndex, Effect)>;

/// The coordinators of transactions on a broker with this configuration, and what they want done. Bounded by the
/// transactions that are ending.
pub fn kind(config: Arc<DynamicConfig>) -> (Kind<Transactions>, Effects) {
    let load_buffer = config.latest().broker.transaction_state_log_load_buffer_size;
    let (effects, wanted) = mpsc::unbounded_channel();
    let kind = Kind {
        topic: TRANSACTION_STATE,
        make: Box::new(move |_| Transactions::new(settings(&config.latest().broker))),
        on_effect: Box::new(move |partition, effect| {
            // Nobody is there any more when the broker stops.
            let _ = effects.send((partition, effect));
        }),
        codec: Compression::None.into(),
        commit_timeout_ms: COMMIT_TIMEOUT_MS,
        load_buffer_bytes: usize::try_from(load_buffer).unwrap_or(0),
    };
    (kind, wanted)
}

/// What the broker's properties say of transactions.
fn settings(broker: &BrokerConfig) -> Settings {
    Settings {
        abort_interval_ms: i64::from(broker.transaction_abort_timed_out_transaction_cleanup_interval_ms),
        expiration_ms: i64::from(broker.transactional_id_expiration_ms),
        expire_interval_ms: i64::from(broker.transaction_remove_expired_transaction_cleanup_interval_ms),
    }
}
