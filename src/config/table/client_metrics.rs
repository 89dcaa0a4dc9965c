//! Properties of subscriptions to metrics of clients.
//! Only the facts; knows no rule between properties. Invariant: in the order of the documentation, not of the alphabet.

use super::super::def::{ConfigDef, int, list};
use super::{NO_TELEMETRY, rules};

#[rustfmt::skip]
pub(super) const DEFS: &[ConfigDef] = &[
    int("interval.ms", "300000").between(100, 3600000).instead(NO_TELEMETRY)
        .doc("How often a client pushes the metrics, in milliseconds."),
    list("match", "").rule(rules::CLIENT_MATCH, rules::client_match).instead(NO_TELEMETRY)
        .doc("Which clients push them, as `property=pattern`, separated by commas; empty for every client."),
    list("metrics", "").any_list().instead(NO_TELEMETRY)
        .doc("How the names of the wanted metrics begin, separated by commas; `*` for all."),
];
