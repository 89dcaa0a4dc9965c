//! What sources make of a configuration: precedence, warnings, and how wrong values are named.

use super::{alone_with, load_file, texts};
use crate::config::value::Value;
use crate::config::{Sources, load, topic_without_effect};

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn without_any_source_a_node_stands_alone_and_nothing_is_warned_about() {
    let config = load(&Sources::default()).unwrap();
    assert_eq!(config.warnings, Vec::<String>::new());
    assert!(config.node.stands_alone());
    assert_eq!(config.node.listeners.len(), 1);
    assert_eq!(config.node.listeners[0].to_string(), "PLAINTEXT://127.0.0.1:9092");
    assert!(config.node.controller_listeners.is_empty());
    assert_eq!(config.node.log_dirs, [std::path::PathBuf::from("./floodmark-data")]);
    assert_eq!(config.node.metadata_log_dir, config.node.log_dirs[0]);
    assert_eq!(config.layers.value("offsets.topic.replication.factor"), Value::Integer(1));
}

#[test]
fn without_a_file_other_sources_change_what_is_built_in() {
    let sources = Sources {
        file: None,
        env: pairs(&[("KAFKA_NODE_ID", "7"), ("KAFKA_NUM_PARTITIONS", "3"), ("KAFKA_HEAP_OPTS", "-Xmx1g")]),
        overrides: pairs(&[("listeners", "PLAINTEXT://:0"), ("num.partitions", "4")]),
    };
    let config = load(&sources).unwrap();
    assert_eq!(config.node.node_id.0, 7);
    assert_eq!(config.node.listeners[0].host, None);
    assert_eq!(config.layers.broker_config().num_partitions, 4, "the command line wins");
    assert!(config.node.stands_alone());
}

#[test]
fn toml_and_properties_say_the_same() {
    let properties =
        alone_with("log.retention.ms=1000\nlog.cleanup.policy=compact,delete\nmax.connections=9\n").unwrap();
    let toml = r#"
        "process.roles" = ["broker", "controller"]
        "node.id" = 1
        "controller.quorum.bootstrap.servers" = "localhost:9093"
        "controller.listener.names" = "CONTROLLER"
        "max.connections" = 9
        listeners = ["PLAINTEXT://localhost:9092", "CONTROLLER://localhost:9093"]
        [log]
        dirs = "/data"
        retention.ms = 1000
        cleanup.policy = ["compact", "delete"]
    "#;
    let toml = load_file("floodmark.toml", toml).unwrap();
    assert_eq!(toml.node, properties.node);
    assert_eq!(toml.layers.broker_config(), properties.layers.broker_config());
    let topic = |config: &crate::config::Config| config.layers.topic_config(&super::texts(&[]));
    assert_eq!(topic(&toml), topic(&properties));
}

#[test]
fn every_wrong_value_is_named_with_its_place_and_the_reason() {
    let errors =
        alone_with("num.partitions=none\nlog.segment.bytes=1\nlog.cleanup.policy=shred\nnum.io.threads=\n")
            .unwrap_err();
    let shown: Vec<String> = errors.problems.iter().map(ToString::to_string).collect();
    let ends = [
        "server.properties:9: log.cleanup.policy=shred: 'shred' is not one of compact, delete",
        "server.properties:8: log.segment.bytes=1: must be at least 1048576",
        "server.properties:10: num.io.threads=: must be a whole number",
        "server.properties:7: num.partitions=none: must be a whole number",
    ];
    assert_eq!(shown.len(), ends.len(), "{shown:#?}");
    for (shown, end) in shown.iter().zip(ends) {
        assert!(shown.ends_with(end), "{shown}");
    }
    assert!(errors.to_string().starts_with("the configuration is refused:\n  "), "{errors}");
}

#[test]
fn each_source_names_itself() {
    let sources = Sources {
        file: None,
        env: pairs(&[("KAFKA_NUM_PARTITIONS", "0")]),
        overrides: pairs(&[("broker.id", "x")]),
    };
    let errors = load(&sources).unwrap_err();
    let shown: Vec<String> = errors.problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "--override: broker.id=x: must be a whole number",
            "environment variable KAFKA_NUM_PARTITIONS: num.partitions=0: must be at least 1",
        ]
    );
}

#[test]
fn what_must_be_set_is_missed() {
    let errors = load_file("server.properties", "num.partitions=1\n").unwrap_err();
    let shown: Vec<String> = errors.problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "controller.listener.names: must be set: it has no default",
            "node.id: must be set: it has no default",
            "process.roles: must be set: it has no default",
        ]
    );
}

#[test]
fn a_wrong_password_is_not_shown() {
    // Nothing is wrong with any password; a listener's property has the type of the plain one.
    let config =
        alone_with("listener.name.plaintext.ssl.keystore.password=sesame\nssl.key.password=sesame\n")
            .unwrap();
    assert!(!format!("{:?}", config.layers.value("ssl.key.password")).contains("sesame"));
    assert!(config.warnings.iter().all(|warning| !warning.contains("sesame")), "{:?}", config.warnings);
}

#[test]
fn one_warning_for_each_property_without_effect() {
    let config = alone_with(
        "num.io.threads=8\nssl.keystore.location=/k\nsuper.users=User:a\nno.such.property=1\nlog.segment.bytes=2000000\nlog.retention.hours=1\n",
    )
    .unwrap();
    let ends = [
        ":10: no.such.property is not a known property; it is ignored",
        ":7: num.io.threads has no effect: num.network.threads and num.shard.threads size the pools",
        ":8: ssl.keystore.location has no effect: TLS is not served yet: only PLAINTEXT listeners start",
        ":9: super.users has no effect: nothing is authorised yet: every client may do everything",
    ];
    assert_eq!(config.warnings.len(), ends.len(), "{:#?}", config.warnings);
    for (warning, end) in config.warnings.iter().zip(ends) {
        assert!(warning.ends_with(end), "{warning}");
    }
}

#[test]
fn a_property_that_no_listener_has_of_its_own_is_warned_of() {
    let config = alone_with(
        "listener.name.plaintext.max.connections=5\nlistener.name.plaintext.connections.max.idle.ms=7\n",
    )
    .unwrap();
    let limits: Vec<_> = config.layers.max_connections_of_listeners().collect();
    assert_eq!(limits, [("plaintext", 5)]);
    let [warning] = &config.warnings[..] else { panic!("{:#?}", config.warnings) };
    let end = "listener.name.plaintext.connections.max.idle.ms has no effect: connections.max.idle.ms holds for all listeners";
    assert!(warning.ends_with(end), "{warning}");
    // Nor when it is set while the broker runs.
    let set = texts(&[
        ("listener.name.plaintext.max.connections", "6"),
        ("listener.name.x.connections.max.idle.ms", "7"),
    ]);
    let changed = config.layers.with_dynamic(&texts(&[]), &set);
    assert_eq!(changed.max_connections_of_listeners().collect::<Vec<_>>(), [("plaintext", 6)]);
    let warnings = changed.warnings_since(Some(&config.layers));
    assert_eq!(
        warnings,
        [
            "listener.name.x.connections.max.idle.ms has no effect: connections.max.idle.ms holds for all listeners"
        ]
    );
}

#[test]
fn what_a_topic_sets_without_effect_is_told_unless_it_holds_anyway() {
    assert_eq!(topic_without_effect("preallocate", "true"), Some("a segment grows as records are written"));
    for (key, text) in [("preallocate", "false"), ("retention.ms", "1"), ("no.such.property", "1")] {
        assert_eq!(topic_without_effect(key, text), None, "{key}");
    }
    assert!(topic_without_effect("local.retention.ms", "1").is_some());
}

#[test]
fn a_file_that_cannot_be_read_is_named_with_the_line() {
    let errors = load_file("floodmark.toml", "a = 1\nb = = 2\n").unwrap_err();
    let shown = errors.problems[0].to_string();
    assert!(shown.contains("floodmark.toml:2: is not TOML"), "{shown}");
    let errors = load_file("server.properties", "a=1\nb=\\u00\n").unwrap_err();
    let shown = errors.problems[0].to_string();
    assert!(shown.contains("server.properties:2: has a malformed escape"), "{shown}");
}

#[test]
fn node_id_and_broker_id_are_one() {
    let text = super::ALONE.replace("node.id=1", "broker.id=5");
    let config = load_file("server.properties", &text).unwrap();
    assert_eq!(config.node.node_id.0, 5);
    let errors = alone_with("broker.id=2\n").unwrap_err();
    assert!(errors.problems[0].to_string().ends_with("broker.id=2: must equal node.id, which is 1"));
}

#[test]
fn the_files_in_the_project_are_right() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("config");
    for name in ["floodmark.toml", "server.properties"] {
        let sources = Sources { file: Some(root.join(name)), ..Sources::default() };
        let config = load(&sources).unwrap_or_else(|errors| panic!("{name}: {errors}"));
        assert_eq!(config.warnings, Vec::<String>::new(), "{name}");
        assert!(config.node.stands_alone(), "{name}");
    }
}

#[test]
fn relations_between_properties_are_checked() {
    let refused = [
        ("log.roll.ms=0", "log.roll.ms=0: must be at least 1"),
        ("log.roll.jitter.ms=-1", "log.roll.jitter.ms=-1: must be at least 0"),
        ("log.retention.minutes=0", "log.retention.minutes=0: must be at least 1, or -1 for no limit"),
        (
            "log.cleaner.threads=200",
            "log.cleaner.dedupe.buffer.size=134217728: must be more than 1 MiB for each",
        ),
        (
            "log.cleaner.min.compaction.lag.ms=9\nlog.cleaner.max.compaction.lag.ms=8",
            "log.cleaner.min.compaction.lag.ms=9",
        ),
        ("replica.fetch.wait.max.ms=40000", "must be at most replica.socket.timeout.ms, which is 30000"),
        (
            "replica.lag.time.max.ms=100",
            "replica.fetch.wait.max.ms=500: must be at most replica.lag.time.max.ms",
        ),
        ("queued.max.request.bytes=1000", "must be at least socket.request.max.bytes, which is 104857600"),
        ("max.connections.per.ip=0", "max.connections.per.ip=0: may be 0 only when"),
        ("connections.max.idle.ms=50", "connection.failed.authentication.delay.ms=100: must be less than"),
        ("group.consumer.session.timeout.ms=1000", "group.consumer.min.session.timeout.ms=45000"),
        ("group.share.heartbeat.interval.ms=99999", "must be at most group.share.max.heartbeat.interval.ms"),
        ("group.share.max.size=1000\ngroup.share.max.share.sessions=10", "group.share.max.size=1000"),
        ("group.share.assignors=mine", "'mine' is not one of simple"),
        ("group.streams.rack.aware.assignment.tags=a,b,a", "has a tag twice"),
        ("log.cleaner.threads=0", "must be at least 1"),
        ("group.coordinator.rebalance.protocols=consumer", "cannot leave out classic"),
        ("cordoned.log.dirs=/elsewhere", "'/elsewhere' is not one of log.dirs"),
        ("cordoned.log.dirs=*,/data", "so it stands alone"),
    ];
    for (line, expected) in refused {
        let errors = alone_with(line).unwrap_err();
        let shown: Vec<String> = errors.problems.iter().map(ToString::to_string).collect();
        assert!(shown.iter().any(|shown| shown.contains(expected)), "{line}: {shown:#?}");
    }
    for line in [
        "log.retention.ms=-1",
        "log.retention.hours=-5",
        "cordoned.log.dirs=/data",
        "max.connections.per.ip=0\nmax.connections.per.ip.overrides=127.0.0.1:5",
        "connections.max.idle.ms=-1",
        "queued.max.request.bytes=104857600",
    ] {
        assert!(alone_with(line).is_ok(), "{line}");
    }
}
