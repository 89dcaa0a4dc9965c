//! Properties of listeners and connections.
//! Only the facts; knows no rule between properties. Invariant: in the order of the documentation, not of the alphabet.

use super::super::def::{ConfigDef, int, list, long, string};
use super::{NO_AUTH, NO_RATE, rules};

#[rustfmt::skip]
pub(super) const DEFS: &[ConfigDef] = &[
    list("listeners", "PLAINTEXT://:9092").filled_list().high().per_broker()
        .doc("The addresses to listen on, as `NAME://host:port`, separated by commas. No host means every interface; port 0 lets the system choose one. Every name and every port appears once. Read at the start alone."),
    list("advertised.listeners", "").null().filled_list().high()
        .doc("The addresses that clients and other nodes are told to use, where they differ from `listeners`."),
    string("listener.security.protocol.map", "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT")
        .low().per_broker()
        .doc("The security protocol of each listener name, as `NAME:PROTOCOL`, separated by commas. Only PLAINTEXT is served so far. Read at the start alone."),
    string("inter.broker.listener.name", "").null()
        .doc("The listener that brokers use among themselves; unset, it is the one named as `security.inter.broker.protocol`."),
    string("security.inter.broker.protocol", "PLAINTEXT")
        .one_of(&["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
        .doc("The protocol among brokers when `inter.broker.listener.name` is unset; only one of the two may be set."),
    list("controller.listener.names", "").required().filled_list().high()
        .doc("The names of the listeners that controllers use, separated by commas; brokers dial the first."),
    int("num.network.threads", "3").at_least(1).high().cluster_wide()
        .doc("Threads that read requests from connections and write answers to them. Read at the start alone."),
    int("queued.max.requests", "500").at_least(1).high()
        .doc("How many requests may wait to be carried out before no more are read."),
    long("queued.max.request.bytes", "-1")
        .doc("How many bytes of requests may be in memory before no more are read; -1 for no limit."),
    int("socket.send.buffer.bytes", "102400").high()
        .doc("The send buffer of a connection (SO_SNDBUF); -1 leaves it to the system."),
    int("socket.receive.buffer.bytes", "102400").high()
        .doc("The receive buffer of a connection (SO_RCVBUF); -1 leaves it to the system."),
    int("socket.listen.backlog.size", "50").at_least(1)
        .doc("How many new connections may wait to be accepted."),
    int("socket.request.max.bytes", "104857600").at_least(1).high()
        .doc("The largest request that is read; a connection that announces more is closed."),
    int("max.connections", "2147483647").at_least(0).cluster_wide()
        .doc("The most connections that a broker holds at a time; more of them wait until one has ended. `listener.name.NAME.max.connections`, with the name in lower case, is the same of one listener."),
    int("max.connections.per.ip", "2147483647").at_least(0).cluster_wide()
        .doc("The most connections from one address."),
    string("max.connections.per.ip.overrides", "").rule(rules::IP_OVERRIDES, rules::ip_overrides)
        .cluster_wide()
        .doc("Limits for single addresses or hosts, as `host:count`, separated by commas."),
    int("max.connection.creation.rate", "2147483647").at_least(0).cluster_wide().instead(NO_RATE)
        .doc("The most new connections per second."),
    long("connections.max.idle.ms", "600000")
        .doc("After how long without a request a connection is closed; a negative value keeps it open."),
    int("connection.failed.authentication.delay.ms", "100").at_least(0).low().instead(NO_AUTH)
        .doc("How long the answer to a failed authentication is held back."),
];
