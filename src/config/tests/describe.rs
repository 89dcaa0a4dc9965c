//! The answers of DescribeConfigs. What is expected here was compared with what Kafka 4.4 answers.

use super::{alone_with, texts};
use crate::config::{Entry, Layers, describe_client_metrics};

/// `name=value [source] synonyms`, as short as it is readable.
fn show(entry: &Entry) -> String {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "null".to_owned());
    let synonyms: Vec<String> = entry
        .synonyms
        .iter()
        .map(|synonym| format!("{:?}:{}={}", synonym.source, synonym.name, text(&synonym.value)))
        .collect();
    format!("{}={} {:?} [{}]", entry.name, text(&entry.value), entry.source, synonyms.join(", "))
}

fn one(entries: &[Entry], name: &str) -> String {
    entries.iter().find(|entry| entry.name == name).map_or_else(|| "none".to_owned(), show)
}

fn layers() -> Layers {
    alone_with("log.retention.hours=24\nsuper.users=User:x\nssl.keystore.password=secret\n").unwrap().layers
}

#[test]
fn topics() {
    let fixed = layers();
    let entries = fixed.describe_topic(&texts(&[("max.message.bytes", "2048")]), None);
    assert_eq!(entries.len(), 37, "all of Kafka's but the internal one, and none of ours");
    assert_eq!(
        one(&entries, "max.message.bytes"),
        "max.message.bytes=2048 Topic [Topic:max.message.bytes=2048, Default:message.max.bytes=1048588]"
    );
    assert_eq!(one(&entries, "retention.ms"), "retention.ms=86400000 Default []", "as no name in ms is set");
    assert_eq!(one(&entries, "flush.ms"), "flush.ms=9223372036854775807 Default []");
    assert_eq!(
        one(&entries, "cleanup.policy"),
        "cleanup.policy=delete Default [Default:log.cleanup.policy=delete]"
    );
    assert_eq!(one(&entries, "remote.storage.enable"), "remote.storage.enable=false Default []");
    let layers =
        fixed.with_dynamic(&texts(&[("log.retention.ms", "5")]), &texts(&[("log.retention.ms", "7")]));
    assert_eq!(
        one(&layers.describe_topic(&texts(&[]), None), "retention.ms"),
        "retention.ms=7 DynamicBroker [DynamicBroker:log.retention.ms=7, DynamicDefaultBroker:log.retention.ms=5, \
         StaticBroker:log.retention.hours=24, Default:log.retention.hours=168]"
    );
}

#[test]
fn our_own_topic_property_is_shown_to_those_who_know_it() {
    let layers = layers();
    assert_eq!(one(&layers.describe_topic(&texts(&[]), Some(&[])), "flush.before.ack"), "none");
    let asked = ["flush.before.ack".to_owned()];
    let entries = layers.describe_topic(&texts(&[]), Some(&asked));
    assert_eq!(entries.len(), 1);
    assert_eq!(show(&entries[0]), "flush.before.ack=true Default [Default:log.flush.before.ack=true]");
    let entries = layers.describe_topic(&texts(&[("flush.before.ack", "false")]), None);
    assert!(one(&entries, "flush.before.ack").starts_with("flush.before.ack=false Topic"));
}

#[test]
fn brokers() {
    let layers = layers().with_dynamic(&texts(&[("num.io.threads", "9")]), &texts(&[("no.such", "1")]));
    let entries = layers.describe_broker(None);
    let entry = |name: &str| entries.iter().find(|entry| entry.name == name).unwrap();
    assert_eq!(show(entry("broker.rack")), "broker.rack=null Default []");
    assert_eq!(
        show(entry("broker.id")),
        "broker.id=1 StaticBroker [StaticBroker:broker.id=1, Default:broker.id=-1]"
    );
    assert_eq!(
        show(entry("num.io.threads")),
        "num.io.threads=9 DynamicDefaultBroker [DynamicDefaultBroker:num.io.threads=9, Default:num.io.threads=8]"
    );
    assert_eq!(
        show(entry("log.retention.hours")),
        "log.retention.hours=24 StaticBroker [StaticBroker:log.retention.hours=24, Default:log.retention.hours=168]"
    );
    assert!(!entry("num.io.threads").read_only && entry("num.partitions").read_only);
    assert!(entry("num.io.threads").documentation.is_some() && entry("num.io.threads").kind.is_some());
    for (name, source) in [
        ("no.such", "DynamicBroker"),
        ("super.users", "StaticBroker"),
        ("ssl.keystore.password", "StaticBroker"),
    ] {
        assert_eq!(show(entry(name)), format!("{name}=null {source} [{source}:{name}=null]"));
        assert!(entry(name).sensitive, "{name}");
    }
    assert!(entries.iter().all(|entry| entry.name != "unstable.api.versions.enable"), "internal");
}

#[test]
fn cluster_defaults() {
    let layers = layers().with_dynamic(&texts(&[("log.retention.ms", "5")]), &texts(&[]));
    let entries = layers.describe_cluster_default(None);
    let shown: Vec<String> = entries.iter().map(show).collect();
    assert_eq!(shown, ["log.retention.ms=5 DynamicDefaultBroker [DynamicDefaultBroker:log.retention.ms=5]"]);
}

#[test]
fn groups() {
    let entries = layers().describe_group(&texts(&[("share.session.timeout.ms", "46000")]), None);
    assert_eq!(entries.len(), 21);
    assert_eq!(
        one(&entries, "share.session.timeout.ms"),
        "share.session.timeout.ms=46000 Group [Group:share.session.timeout.ms=46000, \
         Default:group.share.session.timeout.ms=45000]"
    );
    assert_eq!(
        one(&entries, "streams.assignor.name"),
        "streams.assignor.name=sticky Default [Default:group.streams.assignors=sticky]"
    );
    assert_eq!(
        one(&entries, "share.isolation.level"),
        "share.isolation.level=read_uncommitted Default [Default:share.isolation.level=read_uncommitted]"
    );
}

#[test]
fn client_metrics() {
    let entries = describe_client_metrics(&texts(&[("interval.ms", "1000")]), None);
    let shown: Vec<String> = entries.iter().map(show).collect();
    assert_eq!(
        shown,
        [
            "interval.ms=1000 ClientMetrics [ClientMetrics:interval.ms=1000]",
            "match= Default []",
            "metrics= Default []",
        ]
    );
}
