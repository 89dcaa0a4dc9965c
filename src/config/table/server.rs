//! Properties of a node as such: its identity and roles, its threads, the limits of requests.
//! Only the facts; knows no rule between properties. Invariant: in the order of the documentation, not of the alphabet.

use super::super::def::{ConfigDef, boolean, class, int, list, long, string};
use super::{EARLY, NO_ACL, NO_CLASSES, NO_PROVIDERS, PATIENCE, POOLS, START, UNSTABLE};

#[rustfmt::skip]
pub(super) const DEFS: &[ConfigDef] = &[
    int("node.id", "").required().at_least(0).high()
        .doc("The number of this node, unique in the cluster. A broker and a controller in one process share it."),
    list("process.roles", "").required().filled_list_of(&["broker", "controller"]).high()
        .doc("What this process is: `broker`, `controller` or both."),
    int("broker.id", "-1").high()
        .doc("The old name of `node.id`; where both are set they must agree."),
    string("broker.rack", "").null()
        .doc("The rack or zone of this broker. Replicas are spread over racks, and it is told to clients."),
    int("background.threads", "10").at_least(1).high().cluster_wide().instead(POOLS)
        .doc("Threads for work in the background."),
    int("num.io.threads", "8").at_least(1).high().cluster_wide().instead(POOLS)
        .doc("Threads that carry out requests."),
    int("num.shard.threads", "0").at_least(0).low().ours()
        .doc("Threads that own partitions and write their logs; 0 means one for each processor."),
    int("request.timeout.ms", "30000").high()
        .doc("How long a broker waits for another node's answer."),
    boolean("controlled.shutdown.enable", "true")
        .doc("Whether a broker that stops hands its partitions over first."),
    boolean("delete.topic.enable", "true").high()
        .doc("Whether topics may be deleted at all."),
    int("fetch.max.bytes", "57671680").at_least(1024)
        .doc("The most bytes that one fetch request gets, whatever it asks for; a first batch larger than this is still returned."),
    int("max.incremental.fetch.session.cache.slots", "1000").at_least(0)
        .doc("How many fetch sessions a broker remembers."),
    int("max.request.partition.size.limit", "2000").at_least(1)
        .doc("The most partitions that one answer about topics describes; the rest is asked for with a cursor."),
    list("early.start.listeners", "").null().any_list().high().instead(EARLY)
        .doc("Listeners that open before authorisation is ready."),
    string("authorizer.class.name", "").not_null().low().instead(NO_ACL)
        .doc("The class that decides who may do what; empty allows everything."),
    list("config.providers", "").any_list().low().cluster_wide().instead(NO_PROVIDERS)
        .doc("Names of providers that fill in `${provider:key}` in other values."),
    long("socket.connection.setup.timeout.ms", "10000").instead(PATIENCE)
        .doc("How long connecting to another node may take at first."),
    long("socket.connection.setup.timeout.max.ms", "30000").instead(PATIENCE)
        .doc("How long connecting to another node may take after repeated failures."),
    int("initial.broker.registration.timeout.ms", "60000")
        .doc("How long a starting broker tries to register before it gives up."),
    int("broker.heartbeat.interval.ms", "2000")
        .doc("How often a broker tells the controller that it lives; it does so at least four times a second."),
    int("broker.session.timeout.ms", "9000")
        .doc("After how long without a heartbeat the controller fences a broker in any case. One that crashed, or that others miss as well, it fences sooner."),
    long("server.max.startup.time.ms", "9223372036854775807").at_least(0).internal().instead(START)
        .doc("How long starting may take."),
    class("create.topic.policy.class.name", "").null().low().instead(NO_CLASSES)
        .doc("A class that may refuse new topics."),
    class("alter.config.policy.class.name", "").null().low().instead(NO_CLASSES)
        .doc("A class that may refuse changes of configuration."),
    boolean("unstable.api.versions.enable", "false").high().internal().instead(UNSTABLE)
        .doc("Whether API versions still in development are offered."),
    boolean("unstable.feature.versions.enable", "false").high().internal().instead(UNSTABLE)
        .doc("Whether feature levels still in development may be used."),
];
