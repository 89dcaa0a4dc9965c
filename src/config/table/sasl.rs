//! Properties of SASL.
//! Only the facts; knows no rule between properties. Invariant: in the order of the documentation, not of the alphabet.

use super::super::def::{ConfigDef, boolean, class, double, int, list, long, password, short, string};
use super::{NO_CLASSES, NO_SASL};

#[rustfmt::skip]
pub(super) const DEFS: &[ConfigDef] = &[
    list("sasl.enabled.mechanisms", "GSSAPI").any_list().per_broker().instead(NO_SASL)
        .doc("The SASL mechanisms that are served."),
    string("sasl.mechanism.inter.broker.protocol", "GSSAPI").per_broker().instead(NO_SASL)
        .doc("The mechanism that brokers use among themselves."),
    string("sasl.mechanism.controller.protocol", "GSSAPI").high().instead(NO_SASL)
        .doc("The mechanism that brokers use towards controllers."),
    password("sasl.jaas.config").per_broker().instead(NO_SASL)
        .doc("Who may log in, or as whom this node logs in, in the form of JAAS."),
    class("sasl.server.callback.handler.class", "").null().instead(NO_CLASSES)
        .doc("The class that checks logins."),
    class("sasl.client.callback.handler.class", "").null().instead(NO_CLASSES)
        .doc("The class that supplies this node's own credentials."),
    class("sasl.login.class", "").null().instead(NO_CLASSES)
        .doc("The class that logs in."),
    class("sasl.login.callback.handler.class", "").null().instead(NO_CLASSES)
        .doc("The class that supplies what a login asks for."),
    int("sasl.server.max.receive.size", "524288").instead(NO_SASL)
        .doc("The largest message during authentication."),
    string("sasl.kerberos.service.name", "").null().per_broker().instead(NO_SASL)
        .doc("The Kerberos name of the brokers."),
    string("sasl.kerberos.kinit.cmd", "/usr/bin/kinit").per_broker().instead(NO_SASL)
        .doc("The path of kinit."),
    double("sasl.kerberos.ticket.renew.window.factor", "0.8").per_broker().instead(NO_SASL)
        .doc("After which share of its life a ticket is renewed."),
    double("sasl.kerberos.ticket.renew.jitter", "0.05").per_broker().instead(NO_SASL)
        .doc("By what share that moment varies."),
    long("sasl.kerberos.min.time.before.relogin", "60000").per_broker().instead(NO_SASL)
        .doc("The least time between two renewals, in milliseconds."),
    list("sasl.kerberos.principal.to.local.rules", "DEFAULT").any_list().per_broker().instead(NO_SASL)
        .doc("Rules that make a user name of a Kerberos name."),
    double("sasl.login.refresh.window.factor", "0.8").per_broker().instead(NO_SASL)
        .doc("After which share of its life a login is refreshed."),
    double("sasl.login.refresh.window.jitter", "0.05").per_broker().instead(NO_SASL)
        .doc("By what share that moment varies."),
    short("sasl.login.refresh.min.period.seconds", "60").per_broker().instead(NO_SASL)
        .doc("The least time between two refreshes of a login."),
    short("sasl.login.refresh.buffer.seconds", "300").per_broker().instead(NO_SASL)
        .doc("How long before its end a login is refreshed at the latest."),
    int("sasl.login.connect.timeout.ms", "").null().low().instead(NO_SASL)
        .doc("How long connecting to the authentication provider may take."),
    int("sasl.login.read.timeout.ms", "").null().low().instead(NO_SASL)
        .doc("How long the authentication provider may take to answer."),
    long("sasl.login.retry.backoff.ms", "100").low().instead(NO_SASL)
        .doc("How long a failed login rests at first."),
    long("sasl.login.retry.backoff.max.ms", "10000").low().instead(NO_SASL)
        .doc("How long a failed login rests at most."),
    boolean("sasl.oauthbearer.allow.unverified.audience", "false").instead(NO_SASL)
        .doc("Whether tokens pass without a check of their audience."),
    boolean("sasl.oauthbearer.allow.unverified.issuer", "false").instead(NO_SASL)
        .doc("Whether tokens pass without a check of their issuer."),
    string("sasl.oauthbearer.assertion.algorithm", "RS256").one_of_ignoring_case(&["ES256", "RS256"])
        .instead(NO_SASL)
        .doc("The algorithm that signs an assertion."),
    string("sasl.oauthbearer.assertion.claim.aud", "").null().instead(NO_SASL)
        .doc("The audience in an assertion."),
    int("sasl.oauthbearer.assertion.claim.exp.seconds", "300").between(0, 86400).low().instead(NO_SASL)
        .doc("How long an assertion is valid."),
    string("sasl.oauthbearer.assertion.claim.iss", "").null().instead(NO_SASL)
        .doc("The issuer in an assertion."),
    boolean("sasl.oauthbearer.assertion.claim.jti.include", "false").instead(NO_SASL)
        .doc("Whether an assertion gets an id of its own."),
    int("sasl.oauthbearer.assertion.claim.nbf.seconds", "60").between(0, 3600).low().instead(NO_SASL)
        .doc("How long before now an assertion becomes valid."),
    string("sasl.oauthbearer.assertion.claim.sub", "").null().instead(NO_SASL)
        .doc("The subject in an assertion."),
    string("sasl.oauthbearer.assertion.file", "").null().instead(NO_SASL)
        .doc("A file with a ready assertion."),
    string("sasl.oauthbearer.assertion.private.key.file", "").null().instead(NO_SASL)
        .doc("The file with the key that signs assertions."),
    password("sasl.oauthbearer.assertion.private.key.passphrase").instead(NO_SASL)
        .doc("The password of that key."),
    string("sasl.oauthbearer.assertion.template.file", "").null().instead(NO_SASL)
        .doc("A file with the fixed parts of assertions."),
    string("sasl.oauthbearer.client.credentials.client.id", "").null().instead(NO_SASL)
        .doc("The id with which this node asks for a token."),
    password("sasl.oauthbearer.client.credentials.client.secret").instead(NO_SASL)
        .doc("The secret with which this node asks for a token."),
    int("sasl.oauthbearer.clock.skew.seconds", "30").low().instead(NO_SASL)
        .doc("How far the clocks of provider and broker may differ."),
    list("sasl.oauthbearer.expected.audience", "").any_list().high().instead(NO_SASL)
        .doc("The audiences that tokens may be meant for."),
    string("sasl.oauthbearer.expected.issuer", "").null().high().instead(NO_SASL)
        .doc("The issuer that tokens must come from."),
    string("sasl.oauthbearer.jwks.endpoint.url", "").null().instead(NO_SASL)
        .doc("Where the provider's keys are found."),
    long("sasl.oauthbearer.jwks.endpoint.refresh.ms", "3600000").low().instead(NO_SASL)
        .doc("How often those keys are fetched again."),
    long("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "100").low().instead(NO_SASL)
        .doc("How long failing to fetch those keys rests at first."),
    long("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", "10000").low().instead(NO_SASL)
        .doc("How long failing to fetch those keys rests at most."),
    class("sasl.oauthbearer.jwt.retriever.class", "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever")
        .instead(NO_CLASSES)
        .doc("The class that fetches tokens."),
    class("sasl.oauthbearer.jwt.validator.class", "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator")
        .instead(NO_CLASSES)
        .doc("The class that checks tokens."),
    string("sasl.oauthbearer.scope", "").null().instead(NO_SASL)
        .doc("The scope that this node asks for."),
    string("sasl.oauthbearer.scope.claim.name", "scope").low().instead(NO_SASL)
        .doc("The claim of a token that holds its scope."),
    string("sasl.oauthbearer.sub.claim.name", "sub").low().instead(NO_SASL)
        .doc("The claim of a token that holds its subject."),
    string("sasl.oauthbearer.token.endpoint.url", "").null().instead(NO_SASL)
        .doc("Where tokens are asked for."),
];
