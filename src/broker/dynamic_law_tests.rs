//! The law of dynamic settings: what can be set while a broker runs, and is said to have an effect, changes something that is
//! made of the configuration anew each time, or is read where it is used. A property that nothing reads breaks it.

use std::path::Path;
use std::sync::Arc;

use super::cleaner;
use super::coordinators::groups;
use super::dynamic_config::{DynamicConfig, Effective};
use super::fetcher::driver::fetcher_config;
use super::rig::ME;
use super::settings::TopicSettings;
use super::start_tests::layers;
use crate::config::{ConfigDef, Dynamic, Scope, Support, Value, table};
use crate::metadata::Image;
use crate::metadata::configs::ResourceType;
use crate::wire::messages::StrBytes;
use crate::wire::messages::metadata::ConfigRecord;

const TOPIC: &str = "t";
const GROUP: &str = "g";

/// What is read where it is used: the property, the file, and what stands there.
const AT_USE: &[(&str, &str, &str)] = &[
    ("cordoned.log.dirs", "src/broker/log_dirs.rs", "config.cordons("),
    (
        "follower.replication.throttled.rate",
        "src/broker/throttles.rs",
        ".follower_replication_throttled_rate",
    ),
    ("leader.replication.throttled.rate", "src/broker/throttles.rs", ".leader_replication_throttled_rate"),
    (
        "log.cleaner.io.max.bytes.per.second",
        "src/broker/cleaner/mod.rs",
        ".log_cleaner_io_max_bytes_per_second",
    ),
    ("log.dir.reserve.bytes", "src/broker/start.rs", ".log_dir_reserve_bytes"),
    ("max.connections", "src/cli/node.rs", "config.max_connections)"),
    ("max.connections.per.ip", "src/cli/node.rs", "config.max_connections_per_ip)"),
    ("max.connections.per.ip.overrides", "src/cli/node.rs", "config.connections_per_ip_overrides()"),
    ("num.recovery.threads.per.data.dir", "src/broker/reconciler.rs", ".num_recovery_threads_per_data_dir"),
    (
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "src/broker/throttles.rs",
        ".replica_alter_log_dirs_io_max_bytes_per_second",
    ),
    (
        "transaction.partition.verification.enable",
        "src/api/transactional.rs",
        ".transaction_partition_verification_enable",
    ),
];

/// Some of these every property takes, and one of them is not what holds anyway.
const VALUES: &[&str] = &[
    "true",
    "false",
    "2",
    "7000",
    "50000",
    "2000000",
    "0.25",
    "compact",
    "gzip",
    "LogAppendTime",
    "/data",
    "0:1",
    "127.0.0.1:5",
];

/// What else has to be set for a property to matter.
fn company(key: &str) -> Option<(&'static str, &'static str)> {
    let codec =
        ["gzip", "lz4", "zstd"].into_iter().find(|codec| key == format!("compression.{codec}.level"))?;
    Some(("compression.type", codec))
}

/// Metadata with these settings.
fn image(kind: ResourceType, name: &str, set: &[(&str, &str)]) -> Image {
    let text = |text: &str| StrBytes::from_string(text.to_owned());
    let mut image = Image::default();
    for (key, value) in set {
        let record = ConfigRecord {
            resource_type: kind.code(),
            resource_name: text(name),
            name: text(key),
            value: Some(text(value)),
            ..ConfigRecord::default()
        };
        image.apply(&record.into());
    }
    image
}

/// All that is made of the configuration when it has changed.
fn views(effective: &Arc<Effective>, image: &Image) -> String {
    let broker = &effective.broker;
    format!(
        "{:?} {:?} {:?} {:?} {:?}",
        TopicSettings::new(effective.clone()).of_topic(image, TOPIC),
        effective.election_defaults(),
        cleaner::Settings::new(broker, 0),
        fetcher_config(broker),
        groups::settings(broker).consumer.of_group(&image.configs, &GROUP.into()),
    )
}

/// What a broker makes of it when the property is set to `value`, and when it is not set; `None` if it may not be set so.
fn with_and_without(
    kind: ResourceType,
    name: &str,
    def: &ConfigDef,
    value: &str,
) -> Option<[(String, String); 2]> {
    def.parse(value).ok()?;
    let company: Vec<_> = company(def.name).into_iter().collect();
    let set: Vec<_> = company.iter().copied().chain([(def.name, value)]).collect();
    let made = |set: &[(&str, &str)]| {
        let (image, config) = (image(kind, name, set), DynamicConfig::new(ME, layers(&[])));
        let effective = config.at(&image);
        (views(&effective, &image), format!("{:?}", effective.broker))
    };
    Some([made(&set), made(&company)])
}

/// Whether something is made anew of the property, and whether at least the broker's configuration has it.
fn effects(kind: ResourceType, name: &str, def: &ConfigDef) -> (bool, bool) {
    let (mut changes_views, mut is_read) = (false, false);
    for value in VALUES {
        if let Some([with, without]) = with_and_without(kind, name, def, value) {
            changes_views |= with.0 != without.0;
            is_read |= with.1 != without.1;
        }
    }
    (changes_views, is_read)
}

/// Whether the user hears that it does nothing.
fn is_warned_of(def: &ConfigDef) -> bool {
    VALUES.iter().chain(&["PLAINTEXT://:0", "PLAINTEXT:PLAINTEXT"]).any(|value| {
        let set = [(def.name.to_owned(), (*value).to_owned())].into();
        !layers(&[]).with_dynamic(&Default::default(), &set).warnings_since(None).is_empty()
    })
}

fn honoured(scope: Scope) -> impl Iterator<Item = &'static ConfigDef> {
    table(scope).iter().filter(|def| def.support == Support::Honoured)
}

#[test]
fn every_dynamic_property_of_brokers_has_its_effect_while_they_run() {
    let dynamic = honoured(Scope::Broker).filter(|def| def.dynamic != Dynamic::ReadOnly);
    let mut count = 0;
    for def in dynamic.filter(|def| !is_warned_of(def)) {
        count += 1;
        let own = ME.to_string();
        let name = if def.dynamic == Dynamic::PerBroker { own.as_str() } else { "" };
        let (changes_views, is_read) = effects(ResourceType::Broker, name, def);
        match AT_USE.iter().find(|(key, ..)| *key == def.name) {
            Some((key, file, code)) => {
                assert!(is_read, "{key} is no property that the code reads");
                assert!(!changes_views, "{key} need not be listed");
                let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
                assert!(text.contains(code), "{key} is not read in {file}");
            }
            None => assert!(changes_views, "nothing is made of {}", def.name),
        }
    }
    assert!(count > 40, "{count}");
    for (key, ..) in AT_USE {
        assert!(table(Scope::Broker).get(key).is_some(), "{key}");
    }
}

#[test]
fn every_property_of_topics_and_groups_has_its_effect_while_they_are_there() {
    for (scope, kind, name) in
        [(Scope::Topic, ResourceType::Topic, TOPIC), (Scope::Group, ResourceType::Group, GROUP)]
    {
        let mut count = 0;
        for def in honoured(scope) {
            count += 1;
            assert!(effects(kind, name, def).0, "nothing is made of {}", def.name);
        }
        assert!(count >= 3, "{scope:?}: {count}");
    }
}

/// Else the law would hold whatever nobody reads.
#[test]
fn the_law_sees_what_nothing_is_made_of() {
    // It is read once.
    let def = table(Scope::Broker).get("num.partitions").unwrap();
    assert_eq!(effects(ResourceType::Broker, "", def), (false, false));
    let def = table(Scope::Topic).get("preallocate").unwrap();
    assert_eq!(effects(ResourceType::Topic, TOPIC, def), (false, false));
    assert_eq!(def.default_value(), Value::Boolean(false));
}
