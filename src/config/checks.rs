//! What several of a broker's properties must mean together, except those of listeners and quorum (`node`). Knows no
//! sources. Invariant: a check names the property that is wrong and the one that it is measured by.

use super::layers::Layers;
use super::topic::RemoteStorage;
use super::value::Value;

/// A property and why it is refused.
pub(super) type Finding = (String, String);

/// Pairs of whole numbers of which the first must not be more than the second.
const AT_MOST: &[(&str, &str)] = &[
    ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
    ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
    ("group.share.max.size", "group.share.max.share.sessions"),
    ("group.streams.num.standby.replicas", "group.streams.max.standby.replicas"),
    ("group.streams.num.warmup.replicas", "group.streams.max.warmup.replicas"),
    ("group.streams.min.task.offset.interval.ms", "group.streams.task.offset.interval.ms"),
];

/// Properties of groups that a minimum and a maximum bound, by the kinds of groups.
const BOUNDED: &[(&str, &[&str])] = &[
    ("consumer", &["heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms"]),
    ("streams", &["heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms"]),
    (
        "share",
        &[
            "heartbeat.interval.ms",
            "session.timeout.ms",
            "assignment.interval.ms",
            "delivery.count.limit",
            "partition.max.record.locks",
            "record.lock.duration.ms",
        ],
    ),
];

struct Findings<'a> {
    layers: &'a Layers,
    found: Vec<Finding>,
}

impl Findings<'_> {
    fn add(&mut self, key: &str, reason: impl Into<String>) {
        self.found.push((key.to_owned(), reason.into()));
    }

    fn require(&mut self, holds: bool, key: &str, reason: impl Into<String>) {
        if !holds {
            self.add(key, reason);
        }
    }

    /// The value of a whole number; 0 where there is none, which no caller asks for.
    fn number(&self, key: &str) -> i64 {
        self.layers.integer(key).unwrap_or(0)
    }

    fn list(&self, key: &str) -> Vec<String> {
        match self.layers.value(key) {
            Value::List(entries) => entries,
            _ => Vec::new(),
        }
    }

    fn at_most(&mut self, key: &str, limit_key: &str) {
        let limit = self.number(limit_key);
        self.require(
            self.number(key) <= limit,
            key,
            format!("must be at most {limit_key}, which is {limit}"),
        );
    }
}

/// What is wrong between the properties of a broker, at its start or after a change.
pub(super) fn relations(layers: &Layers) -> Vec<Finding> {
    let mut findings = Findings { layers, found: Vec::new() };
    for (key, limit_key) in AT_MOST {
        findings.at_most(key, limit_key);
    }
    logs(&mut findings);
    sockets(&mut findings);
    groups(&mut findings);
    findings.found
}

/// What is wrong between the properties of a broker after a change.
pub(super) fn dynamic_relations(layers: &Layers) -> Vec<Finding> {
    let mut found = relations(layers);
    // A broker's own defaults for remote topics are checked as a topic's would be.
    let mut config = layers.topic_config(&super::layers::Texts::new());
    config.remote_storage_enable = true;
    config.cleanup_policy.compact = false;
    if let Err(error) = config.check(RemoteStorage::Served { was_enabled: false }) {
        found.push((error.key, error.reason));
    }
    found
}

fn logs(findings: &mut Findings<'_>) {
    let config = findings.layers.topic_config(&super::layers::Texts::new());
    findings.require(config.segment_ms >= 1, "log.roll.ms", "must be at least 1");
    findings.require(config.segment_jitter_ms >= 0, "log.roll.jitter.ms", "must be at least 0");
    findings.require(config.retention_ms != 0, "log.retention.ms", "must be at least 1, or -1 for no limit");
    findings.require(
        config.min_compaction_lag_ms <= config.max_compaction_lag_ms,
        "log.cleaner.min.compaction.lag.ms",
        format!(
            "must be at most log.cleaner.max.compaction.lag.ms, which is {}",
            config.max_compaction_lag_ms
        ),
    );
    let threads = findings.number("log.cleaner.threads");
    let buffer = findings.number("log.cleaner.dedupe.buffer.size");
    findings.require(threads >= 1, "log.cleaner.threads", "must be at least 1");
    findings.require(
        threads < 1 || buffer / threads > 1024 * 1024,
        "log.cleaner.dedupe.buffer.size",
        format!("must be more than 1 MiB for each of the {threads} log.cleaner.threads"),
    );
    cordoned(findings);
}

fn cordoned(findings: &mut Findings<'_>) {
    let mut dirs = findings.list("log.dirs");
    if dirs.is_empty() {
        dirs = findings.list("log.dir");
    }
    let cordoned = findings.list("cordoned.log.dirs");
    if cordoned.iter().any(|dir| dir == "*") {
        findings.require(
            cordoned.len() == 1,
            "cordoned.log.dirs",
            "'*' stands for all directories, so it stands alone",
        );
    } else if let Some(stranger) = cordoned.iter().find(|dir| !dirs.contains(dir)) {
        findings.add("cordoned.log.dirs", format!("'{stranger}' is not one of log.dirs"));
    }
}

fn sockets(findings: &mut Findings<'_>) {
    let queued = findings.number("queued.max.request.bytes");
    let request = findings.number("socket.request.max.bytes");
    findings.require(
        queued <= 0 || queued >= request,
        "queued.max.request.bytes",
        format!("must be at least socket.request.max.bytes, which is {request}"),
    );
    let has_overrides =
        findings.layers.value("max.connections.per.ip.overrides") != Value::Text(String::new());
    findings.require(
        findings.number("max.connections.per.ip") != 0 || has_overrides,
        "max.connections.per.ip",
        "may be 0 only when max.connections.per.ip.overrides lets somebody in",
    );
    let idle = findings.number("connections.max.idle.ms");
    let delay = findings.number("connection.failed.authentication.delay.ms");
    findings.require(
        idle < 0 || delay < idle,
        "connection.failed.authentication.delay.ms",
        format!("must be less than connections.max.idle.ms, which is {idle}"),
    );
}

fn groups(findings: &mut Findings<'_>) {
    for (kind, names) in BOUNDED {
        for name in *names {
            let key = format!("group.{kind}.{name}");
            let (min, max) = (format!("group.{kind}.min.{name}"), format!("group.{kind}.max.{name}"));
            findings.at_most(&min, &max);
            findings.at_most(&min, &key);
            findings.at_most(&key, &max);
        }
        let heartbeat = format!("group.{kind}.heartbeat.interval.ms");
        let session = format!("group.{kind}.session.timeout.ms");
        let holds = findings.number(&heartbeat) < findings.number(&session);
        findings.require(holds, &heartbeat, format!("must be less than {session}"));
    }
    let assignors = findings.list("group.share.assignors").len();
    findings.require(assignors == 1, "group.share.assignors", "must name exactly one assignor");
    let tags = "group.streams.rack.aware.assignment.tags";
    let twice = findings.layers.fixed.get(tags).is_some_and(|setting| has_repeated_entry(&setting.text));
    findings.require(!twice, tags, "has a tag twice");
    let classic = findings.list("group.coordinator.rebalance.protocols").iter().any(|name| name == "classic");
    findings.require(classic, "group.coordinator.rebalance.protocols", "cannot leave out classic");
}

/// Whether the text of a list has an entry twice, which its value no longer shows.
pub(super) fn has_repeated_entry(text: &str) -> bool {
    let entries: Vec<&str> = text.split(',').map(str::trim).filter(|entry| !entry.is_empty()).collect();
    entries.iter().enumerate().any(|(index, entry)| entries[..index].contains(entry))
}
