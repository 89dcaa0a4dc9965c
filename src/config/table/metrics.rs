//! Properties of metrics.
//! Only the facts; knows no rule between properties. Invariant: in the order of the documentation, not of the alphabet.

use super::super::def::{ConfigDef, int, list, long, string};
use super::{NO_JMX, NO_TELEMETRY};

#[rustfmt::skip]
pub(super) const DEFS: &[ConfigDef] = &[
    list("metric.reporters", "org.apache.kafka.common.metrics.JmxReporter").any_list().low().cluster_wide()
        .instead(NO_JMX)
        .doc("Classes that report metrics."),
    int("metrics.num.samples", "2").at_least(1).low().instead(NO_JMX)
        .doc("How many samples a metric looks back over."),
    long("metrics.sample.window.ms", "30000").at_least(1).low().instead(NO_JMX)
        .doc("How long each sample of a metric is."),
    string("metrics.recording.level", "INFO").low().instead(NO_JMX)
        .doc("How much is measured: INFO, DEBUG or TRACE."),
    list("kafka.metrics.reporters", "").any_list().low().instead(NO_JMX)
        .doc("Classes that report the older metrics."),
    int("kafka.metrics.polling.interval.secs", "10").at_least(1).low().instead(NO_JMX)
        .doc("How often those classes are asked to report."),
    int("telemetry.max.bytes", "1048576").at_least(1).low().instead(NO_TELEMETRY)
        .doc("The largest report of metrics that a client may push."),
];
