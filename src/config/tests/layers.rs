//! Dynamic layers over static ones, and what topics inherit.

use super::{alone_with, texts};
use crate::config::{CleanupPolicy, MessageTimestampType, TopicCompression, Value};

#[test]
fn a_topic_inherits_from_the_broker_in_its_own_units() {
    let layers =
        alone_with("log.retention.hours=2\nlog.roll.hours=1\nlog.segment.bytes=2097152\n").unwrap().layers;
    let topic = layers.topic_config(&texts(&[]));
    assert_eq!(
        (topic.retention_ms, topic.segment_ms, topic.segment_bytes()),
        (7_200_000, 3_600_000, 2_097_152)
    );
    let layers = alone_with("log.retention.minutes=1\nlog.retention.hours=2\n").unwrap().layers;
    assert_eq!(layers.topic_config(&texts(&[])).retention_ms, 60_000);
    let layers = alone_with("log.retention.ms=-7\n").unwrap().layers;
    assert_eq!(layers.topic_config(&texts(&[])).retention_ms, -1);
    let layers = alone_with("log.flush.scheduler.interval.ms=77\n").unwrap().layers;
    assert_eq!(layers.topic_config(&texts(&[])).flush_ms, 77);
}

#[test]
fn a_topic_overrides_its_broker() {
    let layers = alone_with("log.cleanup.policy=delete\nlog.flush.before.ack=false\n").unwrap().layers;
    let topic = layers.topic_config(&texts(&[
        ("cleanup.policy", "compact,delete"),
        ("compression.type", "zstd"),
        ("compression.zstd.level", "7"),
        ("message.timestamp.type", "LogAppendTime"),
        ("flush.before.ack", "true"),
        ("internal.segment.bytes", "100"),
        ("max.compaction.lag.ms", "9"),
    ]));
    assert_eq!(topic.cleanup_policy, CleanupPolicy { compact: true, delete: true });
    assert_eq!(topic.compression(), TopicCompression::Zstd(7));
    assert_eq!(topic.message_timestamp_type, MessageTimestampType::LogAppendTime);
    assert!(topic.flush_before_ack);
    assert_eq!((topic.segment_bytes(), topic.max_segment_ms()), (100, 9));
    assert!(!layers.topic_config(&texts(&[])).flush_before_ack);
}

#[test]
fn layers_win_in_order_and_hide_synonyms_below() {
    let fixed = alone_with("log.retention.ms=1000\nnum.io.threads=4\n").unwrap().layers;
    let retention = |layers: &crate::config::Layers| layers.topic_config(&texts(&[])).retention_ms;
    let cluster = texts(&[("log.retention.ms", "2000"), ("num.io.threads", "5")]);
    let layers = fixed.with_dynamic(&cluster, &texts(&[]));
    assert_eq!((retention(&layers), layers.value("num.io.threads")), (2000, Value::Integer(5)));
    let layers = layers.with_dynamic(&cluster, &texts(&[("log.retention.ms", "3000")]));
    assert_eq!((retention(&layers), layers.value("num.io.threads")), (3000, Value::Integer(5)));
    let layers = layers.with_dynamic(&texts(&[]), &texts(&[]));
    assert_eq!((retention(&layers), layers.value("num.io.threads")), (1000, Value::Integer(4)));
}

#[test]
fn what_may_not_be_set_dynamically_is_passed_over() {
    let fixed = alone_with("num.partitions=2\n").unwrap().layers;
    let strange = texts(&[
        ("num.partitions", "9"),
        ("node.id", "9"),
        ("num.io.threads", "many"),
        ("ssl.keystore.password", "x"),
        ("log.cleaner.threads", "2"),
    ]);
    let layers = fixed.with_dynamic(&texts(&[("cordoned.log.dirs", "/data")]), &strange);
    assert_eq!(layers.value("num.partitions"), Value::Integer(2));
    assert_eq!(layers.value("node.id"), Value::Integer(1));
    assert_eq!(layers.value("num.io.threads"), Value::Integer(8));
    assert_eq!(layers.value("ssl.keystore.password"), Value::Null);
    assert_eq!(layers.value("cordoned.log.dirs"), Value::List(vec![]));
    assert_eq!(layers.value("log.cleaner.threads"), Value::Integer(2));
}

#[test]
fn limits_for_single_addresses() {
    let layers = alone_with("max.connections.per.ip.overrides=127.0.0.1:5, ::1:7\n").unwrap().layers;
    let limits = layers.broker_config().connections_per_ip_overrides();
    assert_eq!(limits, [("127.0.0.1".to_owned(), 5), ("::1".to_owned(), 7)]);
}

#[test]
fn what_is_set_without_effect_while_a_broker_runs_is_told_once() {
    let fixed = alone_with("log.retention.ms=5\n").unwrap().layers;
    assert_eq!(fixed.warnings_since(None), Vec::<String>::new());
    let cluster = texts(&[("num.network.threads", "4"), ("log.segment.bytes", "2097152")]);
    let first = fixed.with_dynamic(&cluster, &texts(&[]));
    let threads =
        "num.network.threads has no effect: it is taken from the configuration that the node starts with";
    assert_eq!(first.warnings_since(Some(&fixed)), [threads]);
    assert_eq!(first.warnings_since(None), [threads]);
    let second = first.with_dynamic(&cluster, &texts(&[("log.preallocate", "true")]));
    let preallocate = "log.preallocate has no effect: a segment grows as records are written";
    assert_eq!(second.warnings_since(Some(&first)), [preallocate]);
    assert_eq!(second.warnings_since(Some(&second)), Vec::<String>::new());
}
