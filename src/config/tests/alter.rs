//! What may be set while the cluster runs. The refusals and their kinds are those of Kafka 4.4.

use super::{alone_with, texts};
use crate::config::AlterErrorKind::{InvalidConfig, InvalidRequest};
use crate::config::{AlterError, AlterErrorKind, Layers, validate_client_metrics};

fn layers() -> Layers {
    alone_with("").unwrap().layers
}

fn kind(checked: Result<(), AlterError>) -> Option<AlterErrorKind> {
    checked.err().map(|error| error.kind)
}

#[test]
fn topics() {
    let layers = layers();
    let check = |pairs: &[(&str, &str)]| kind(layers.validate_topic(&texts(&[]), &texts(pairs)));
    for refused in [
        ("no.such.config", "1"),
        ("retention.ms", "soon"),
        ("retention.ms", "-2"),
        ("cleanup.policy", "shred"),
        ("min.insync.replicas", "0"),
        ("segment.bytes", "1"),
        ("compression.type", "rar"),
        ("min.cleanable.dirty.ratio", "2"),
        ("leader.replication.throttled.replicas", "nonsense"),
        ("preallocate", "perhaps"),
        ("unclean.leader.election.enable", "yes"),
        ("remote.storage.enable", "true"),
        ("log.retention.ms", "1"),
    ] {
        assert_eq!(check(&[refused]), Some(InvalidConfig), "{refused:?}");
    }
    assert_eq!(check(&[("max.compaction.lag.ms", "1"), ("min.compaction.lag.ms", "9")]), Some(InvalidConfig));
    for accepted in [
        ("retention.ms", " 3600000 "),
        ("cleanup.policy", "compact,delete"),
        ("cleanup.policy", ""),
        ("local.retention.ms", "999999999999"),
        ("flush.before.ack", "FALSE"),
        ("internal.segment.bytes", "10"),
    ] {
        assert_eq!(check(&[accepted]), None, "{accepted:?}");
    }
}

#[test]
fn topics_in_remote_storage() {
    let layers = alone_with("remote.log.storage.system.enable=true\n").unwrap().layers;
    let remote = ("remote.storage.enable", "true");
    let check =
        |pairs: &[(&str, &str)]| layers.validate_topic(&texts(&[]), &texts(pairs)).err().map(|it| it.key);
    assert_eq!(check(&[remote]), None);
    let refused = |pairs: &[(&str, &str)], key: &str| {
        let pairs: Vec<_> = pairs.iter().copied().chain([remote]).collect();
        assert_eq!(check(&pairs).as_deref(), Some(key), "{pairs:?}");
    };
    refused(&[("cleanup.policy", "compact")], "cleanup.policy");
    refused(&[("local.retention.ms", "999999999999")], "local.retention.ms");
    refused(&[("retention.ms", "5"), ("local.retention.ms", "-1")], "local.retention.ms");
    refused(&[("retention.bytes", "5"), ("local.retention.bytes", "6")], "local.retention.bytes");
    refused(&[("retention.ms", "5"), ("remote.copy.lag.ms", "6")], "remote.copy.lag.ms");
    refused(&[("local.retention.ms", "5"), ("remote.log.copy.disable", "true")], "local.retention.ms");
    let leaves = layers.validate_topic(&texts(&[remote]), &texts(&[]));
    assert_eq!(kind(leaves), Some(InvalidConfig));
    assert_eq!(
        kind(layers.validate_topic(&texts(&[remote]), &texts(&[("remote.log.delete.on.disable", "true")]))),
        None
    );
}

#[test]
fn brokers() {
    let layers = layers();
    let check = |key: &str, text: &str| kind(layers.validate_broker(&texts(&[(key, text)])));
    for (key, text) in [
        ("node.id", "4"),
        ("num.partitions", "4"),
        ("num.io.threads", "many"),
        ("num.io.threads", "0"),
        ("num.io.threads", "1000"),
        ("num.io.threads", "3"),
        ("listeners", "PLAINTEXT://127.0.0.1:1"),
        ("ssl.keystore.password", "secret"),
        ("log.local.retention.ms", "999999999999"),
        ("log.roll.ms", "0"),
        ("cordoned.log.dirs", "/elsewhere"),
    ] {
        assert_eq!(check(key, text), Some(InvalidRequest), "{key}={text}");
    }
    for (key, text) in [
        ("log.retention.ms", "7200000"),
        ("num.io.threads", "16"),
        ("message.max.bytes", "2000000"),
        ("no.such.config", "1"),
        ("cordoned.log.dirs", "/data"),
        ("listener.name.plaintext.ssl.keystore.password", "secret"),
    ] {
        assert_eq!(check(key, text), None, "{key}={text}");
    }
}

#[test]
fn cluster_defaults() {
    let layers = layers();
    let check = |key: &str, text: &str| kind(layers.validate_cluster_default(&texts(&[(key, text)])));
    for (key, text) in [
        ("log.dirs", "elsewhere"),
        ("log.cleaner.threads", "x"),
        ("max.connections.per.ip", "-3"),
        ("cordoned.log.dirs", "/data"),
        ("listener.name.plaintext.ssl.keystore.location", "/k"),
    ] {
        assert_eq!(check(key, text), Some(InvalidRequest), "{key}={text}");
    }
    for (key, text) in [
        ("log.retention.ms", "1"),
        ("log.cleaner.threads", "2"),
        ("min.insync.replicas", "2"),
        ("listener.name.plaintext.max.connections", "5"),
        ("leader.replication.throttled.rate", "1000"),
    ] {
        assert_eq!(check(key, text), None, "{key}={text}");
    }
}

#[test]
fn groups() {
    let layers = layers();
    let check = |pairs: &[(&str, &str)]| kind(layers.validate_group(&texts(pairs)));
    for refused in [
        ("consumer.session.timeout.ms", "1"),
        ("consumer.session.timeout.ms", "100000"),
        ("consumer.heartbeat.interval.ms", "45000"),
        ("consumer.heartbeat.interval.ms", "60000"),
        ("no.such.config", "1"),
        ("share.auto.offset.reset", "sometimes"),
        ("share.record.lock.duration.ms", "1"),
        ("streams.num.standby.replicas", "99"),
        ("streams.assignor.name", "magic"),
        ("streams.rack.aware.assignment.tags", "a,b,a"),
        ("errors.deadletterqueue.topic.name", "__mine"),
        ("share.isolation.level", "none"),
    ] {
        assert_eq!(check(&[refused]), Some(InvalidConfig), "{refused:?}");
    }
    for accepted in [
        ("share.auto.offset.reset", "by_duration:PT1H"),
        ("share.record.lock.duration.ms", "20000"),
        ("streams.num.standby.replicas", "1"),
        ("streams.assignor.name", "sticky"),
    ] {
        assert_eq!(check(&[accepted]), None, "{accepted:?}");
    }
    assert_eq!(
        check(&[("consumer.session.timeout.ms", "50000"), ("consumer.heartbeat.interval.ms", "6000")]),
        None
    );
}

#[test]
fn client_metrics() {
    let check = |key: &str, text: &str| kind(validate_client_metrics(&texts(&[(key, text)])));
    for (key, text) in [("interval.ms", "5"), ("interval.ms", "99999999"), ("no.such.config", "1")] {
        assert_eq!(check(key, text), Some(InvalidRequest), "{key}={text}");
    }
    for (key, text) in
        [("match", "client_id"), ("match", "planet=earth"), ("match", "client_id=[("), ("interval.ms", "x")]
    {
        assert_eq!(check(key, text), Some(InvalidConfig), "{key}={text}");
    }
    for (key, text) in
        [("interval.ms", "100"), ("metrics", "*"), ("match", "client_id=app1,client_software_name=java")]
    {
        assert_eq!(check(key, text), None, "{key}={text}");
    }
}

#[test]
fn a_refusal_shows_no_password() {
    let error = layers().validate_broker(&texts(&[("ssl.keystore.password", "sesame")])).unwrap_err();
    assert!(!error.to_string().contains("sesame"), "{error}");
}
