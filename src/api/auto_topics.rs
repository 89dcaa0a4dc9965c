//! Topics that come into being because a client asked for their metadata (`auto.create.topics.enable`) or for a coordinator.
//!
//! What this broker's settings say of partitions and replicas counts; what they do not say, those of the active controller.
//! Who asks for metadata does not wait, and asks again; the topic is begun when [`PAUSE`] is over.
//! Who asks for a coordinator waits a little, for clients come back late.
//! Invariant: a name is being created at most once at a time.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::creation_defaults::{DEFAULT_REPLICATION_FACTOR, NUM_PARTITIONS};
use super::{Api, create_topics};
use crate::metadata::topics::NewTopic;
use crate::types::{ErrorCode, Uuid};

/// How long a topic that a client has asked for is not begun, which is about what Kafka takes to create one. A client that looks
/// twice and compares must find nothing both times: kafka-go's groups share out what they find after they have joined, then look
/// whether that changes, and have nothing for ever if the topic appears in between. Others come back after 80 ms or more.
const PAUSE: Duration = Duration::from_millis(40);
/// How long somebody waits for an internal topic.
const INTERNAL_LIMIT: Duration = Duration::from_secs(1);

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
    let (layers, settings) = (&effective.layers, &effective.broker);
    let partitions = layers.is_set(NUM_PARTITIONS).then_some(settings.num_partitions);
    let factor = i16::try_from(settings.default_replication_factor).unwrap_or(i16::MAX);
    let replication_factor = layers.is_set(DEFAULT_REPLICATION_FACTOR).then_some(factor);
    let topic = |name: &&str| NewTopic {
        name: (*name).into(),
        id: Uuid::new_v4(),
        partitions,
        replication_factor,
        ..NewTopic::default()
    };
    begin(api, names.iter().map(topic).collect(), PAUSE);
}

/// Creates a topic that the broker itself needs. Returns when that has succeeded or failed, or after a while.
pub async fn create_internal(api: &Arc<Api>, topic: NewTopic) {
    let name = topic.name.clone();
    begin(api, vec![topic], Duration::ZERO);
    let _ = tokio::time::timeout(INTERNAL_LIMIT, api.auto_topics.without(&name)).await;
}

fn begin(api: &Arc<Api>, mut topics: Vec<NewTopic>, pause: Duration) {
    let names: Vec<&str> = topics.iter().map(|topic| &*topic.name).collect();
    let names = api.auto_topics.take(&names);
    if names.is_empty() {
        return;
    }
    topics.retain(|topic| names.iter().any(|name| **name == *topic.name));
    let api = Arc::clone(api);
    tokio::spawn(async move {
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
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
