//! Properties of principals and delegation tokens.
//! Only the facts; knows no rule between properties. Invariant: in the order of the documentation, not of the alphabet.

use super::super::def::{ConfigDef, class, long, password, string};
use super::{NO_CLASSES, NO_SASL, NO_TOKENS};

#[rustfmt::skip]
pub(super) const DEFS: &[ConfigDef] = &[
    class("principal.builder.class", "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder")
        .per_broker().instead(NO_CLASSES)
        .doc("The class that makes a principal of an authenticated client."),
    long("connections.max.reauth.ms", "0").instead(NO_SASL)
        .doc("How long an authenticated session lasts before the client must authenticate again; 0 for ever."),
    string("security.providers", "").null().low().instead(NO_CLASSES)
        .doc("Classes that provide algorithms."),
    password("delegation.token.secret.key").instead(NO_TOKENS)
        .doc("The key that signs delegation tokens, the same on every broker."),
    long("delegation.token.max.lifetime.ms", "604800000").at_least(1).instead(NO_TOKENS)
        .doc("How long a delegation token may live however often it is renewed."),
    long("delegation.token.expiry.time.ms", "86400000").at_least(1).instead(NO_TOKENS)
        .doc("How long a delegation token is valid without renewal."),
    long("delegation.token.expiry.check.interval.ms", "3600000").at_least(1).low().instead(NO_TOKENS)
        .doc("How often expired delegation tokens are removed."),
];
