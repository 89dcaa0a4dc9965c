//! Topics that come into being because a client asked for their metadata (`auto.create.topics.enable`) or for a coordinator.
//!
//! What this broker's settings say of partitions and replicas counts; what they do not say, those of the active controller. An
//! internal topic comes with the settings that its coordinators need, whoever names it first.
//! Who asks for metadata does not wait, and asks again. Who asks for a coordinator waits a little, for clients come back late.
//! Invariant: a name is being created at most once at a time.

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::creation_defaults::{DEFAULT_REPLICATION_FACTOR, NUM_PARTITIONS};
use super::{Api, create_topics};
use crate::broker::dynamic_config::Effective;
use crate::config::BrokerConfig;
use crate::metadata::topics::NewTopic;
use crate::metadata::topics::name::{CONSUMER_OFFSETS, TRANSACTION_STATE};
use crate::types::{ErrorCode, MonotonicMs, Uuid};

/// How long somebody waits for an internal topic.
const INTERNAL_LIMIT: Duration = Duration::from_secs(1);
/// How long a topic stays out of sight of the connection that was told that it is missing. Clients that wait for it come back after
/// 80 ms or more, of which Kafka takes half to make it.
const OUT_OF_SIGHT_MS: i64 = 75;
/// So many names are kept out of sight of a connection; others show when they are there.
const AWAITED_MAX: usize = 100;

/// The topics that are created because a connection asked for them, and when it may see them.
///
/// A client that asks twice in a row and compares is told the same twice. kafka-go's groups share out what there is and then watch
/// whether that changes: a topic that appears between these questions would be nobody's for ever. (On Kafka 4.4 it is, 2 times of 5.)
#[derive(Debug, Default)]
pub struct Awaited(Mutex<HashMap<String, MonotonicMs>>);

impl Awaited {
    pub fn hides(&self, name: &str, now: MonotonicMs) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name).is_some_and(|shown| now < *shown)
    }

    /// These are missing, and are being created.
    pub fn told(&self, names: &[&str], now: MonotonicMs) {
        let mut awaited = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        awaited.retain(|_, shown| now < *shown);
        for name in names {
            if awaited.len() < AWAITED_MAX {
                awaited.entry((*name).to_owned()).or_insert(now.plus(OUT_OF_SIGHT_MS));
            }
        }
    }
}

/// The names that are being created.
#[derive(Debug, Default)]
pub struct InFlight {
    names: Mutex<HashSet<String>>,
    ended: Notify,
}

impl InFlight {
    /// Takes the names that nobody is creating yet.
    fn take(&self, names: &[&str]) -> Vec<String> {
        let mut in_flight = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names
            .iter()
            .filter(|name| in_flight.insert((**name).to_owned()))
            .map(|name| (*name).to_owned())
            .collect()
    }

    fn give_back(&self, names: &[String]) {
        let mut in_flight = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        for name in names {
            in_flight.remove(name);
        }
        drop(in_flight);
        self.ended.notify_waiters();
    }

    fn has(&self, name: &str) -> bool {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).contains(name)
    }

    /// Waits until a name is not being created.
    async fn without(&self, name: &str) {
        loop {
            let mut ended = pin!(self.ended.notified());
            // From here on no end is missed.
            ended.as_mut().enable();
            if !self.has(name) {
                return;
            }
            ended.await;
        }
    }
}

/// Begins to create topics of which nothing is known but their names.
pub fn create(api: &Arc<Api>, names: &[&str]) {
    let effective = api.config.at(&api.metadata.image());
    begin(api, names.iter().map(|name| wanted(name, &effective)).collect());
}

/// Creates an internal topic. Returns when that has succeeded or failed, or after a while.
pub async fn create_and_wait(api: &Arc<Api>, name: &str) {
    create(api, &[name]);
    let _ = tokio::time::timeout(INTERNAL_LIMIT, api.auto_topics.without(name)).await;
}

/// A topic as the broker's settings want it. Whoever is the first to name an internal one: it is the coordinators'.
fn wanted(name: &str, effective: &Effective) -> NewTopic {
    let (layers, settings) = (&effective.layers, &effective.broker);
    if matches!(name, CONSUMER_OFFSETS | TRANSACTION_STATE) {
        return internal_topic(name, settings);
    }
    let factor = i16::try_from(settings.default_replication_factor).unwrap_or(i16::MAX);
    NewTopic {
        name: name.into(),
        id: Uuid::new_v4(),
        partitions: layers.is_set(NUM_PARTITIONS).then_some(settings.num_partitions),
        replication_factor: layers.is_set(DEFAULT_REPLICATION_FACTOR).then_some(factor),
        ..NewTopic::default()
    }
}

fn internal_topic(topic: &str, settings: &BrokerConfig) -> NewTopic {
    let (partitions, replication_factor, segment_bytes) = if topic == CONSUMER_OFFSETS {
        (
            settings.offsets_topic_num_partitions,
            settings.offsets_topic_replication_factor,
            settings.offsets_topic_segment_bytes,
        )
    } else {
        (
            settings.transaction_state_log_num_partitions,
            settings.transaction_state_log_replication_factor,
            settings.transaction_state_log_segment_bytes,
        )
    };
    let mut configs =
        vec![("cleanup.policy", "compact".to_owned()), ("segment.bytes", segment_bytes.to_string())];
    if topic == CONSUMER_OFFSETS {
        // The coordinator compresses what it writes.
        configs.push(("compression.type", "producer".to_owned()));
    } else {
        configs.push(("compression.type", "uncompressed".to_owned()));
        configs.push(("min.insync.replicas", settings.transaction_state_log_min_isr.to_string()));
        configs.push(("unclean.leader.election.enable", "false".to_owned()));
    }
    let configs = configs.into_iter().map(|(key, value)| (key.into(), Some(value.into())));
    NewTopic {
        name: topic.into(),
        id: Uuid::new_v4(),
        partitions: Some(partitions),
        replication_factor: Some(replication_factor),
        configs: configs.collect(),
        ..NewTopic::default()
    }
}

fn begin(api: &Arc<Api>, mut topics: Vec<NewTopic>) {
    let names: Vec<&str> = topics.iter().map(|topic| &*topic.name).collect();
    let names = api.auto_topics.take(&names);
    if names.is_empty() {
        return;
    }
    topics.retain(|topic| names.iter().any(|name| **name == *topic.name));
    let api = Arc::clone(api);
    tokio::spawn(async move {
        let timeout = u64::try_from(api.config.latest().broker.request_timeout_ms).unwrap_or(0);
        let outcomes = create_topics::create(&api, topics.into(), Duration::from_millis(timeout)).await;
        for (topic, outcome) in outcomes {
            match outcome {
                Err(refusal) if refusal.code != ErrorCode::TopicAlreadyExists => {
                    tracing::warn!(%topic, reason = refusal.message, "could not create a topic on demand");
                }
                _ => {}
            }
        }
        api.auto_topics.give_back(&names);
    });
}

#[cfg(test)]
mod tests {
    use super::{AWAITED_MAX, Awaited};
    use crate::types::MonotonicMs;

    fn ms(at: i64) -> MonotonicMs {
        MonotonicMs(at)
    }

    #[test]
    fn what_a_connection_was_told_stays_so_for_a_moment_and_no_longer_for_being_asked_again() {
        let awaited = Awaited::default();
        assert!(!awaited.hides("a", ms(0)));
        awaited.told(&["a"], ms(100));
        awaited.told(&["a", "b"], ms(120));
        let hidden = |at| (awaited.hides("a", ms(at)), awaited.hides("b", ms(at)));
        assert_eq!(
            [hidden(174), hidden(175), hidden(194), hidden(195)],
            [(true, true), (false, true), (false, true), (false, false)]
        );
        awaited.told(&["a"], ms(200));
        assert!(awaited.hides("a", ms(274)), "still missing");
    }

    #[test]
    fn names_without_end_take_no_memory() {
        let awaited = Awaited::default();
        let names: Vec<String> = (0..10_000).map(|n| n.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        awaited.told(&names, ms(0));
        assert_eq!(awaited.0.lock().unwrap().len(), AWAITED_MAX);
        awaited.told(&["last"], ms(75));
        assert_eq!(awaited.0.lock().unwrap().len(), 1);
    }
}
