//! What a node is read as, and Kafka's checks of roles, listeners and quorum.

use super::{ALONE, alone_with, load_file};
use crate::config::{ListenerName, NodeConfig, SecurityProtocol};

const BROKER: &str = "\
process.roles=broker
node.id=1
controller.quorum.voters=2@controller:9093
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://localhost:9092
log.dirs=/a, /b
";

const CONTROLLER: &str = "\
process.roles=controller
node.id=2
controller.quorum.voters=2@localhost:9093
controller.listener.names=CONTROLLER
listeners=CONTROLLER://localhost:9093
log.dirs=/data
";

fn node(text: &str) -> NodeConfig {
    load_file("server.properties", text).unwrap().node
}

/// The problems of `base` without the properties that `more` sets again.
fn problems(base: &str, more: &str) -> Vec<String> {
    match load_file("server.properties", &format!("{base}{more}\n")) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.problems.iter().map(ToString::to_string).collect(),
    }
}

fn assert_refused(base: &str, more: &str, expected: &str) {
    let problems = problems(base, more);
    assert!(problems.iter().any(|problem| problem.contains(expected)), "{more}: {problems:#?}");
}

#[test]
fn the_three_kinds_of_nodes() {
    let alone = node(ALONE);
    assert!(alone.roles.broker && alone.roles.controller && alone.stands_alone());
    assert_eq!(alone.inter_broker_listener, ListenerName::new("PLAINTEXT"));
    assert_eq!(alone.controller_listeners[0].protocol, SecurityProtocol::Plaintext, "by default");

    let broker = node(BROKER);
    assert!(broker.roles.broker && !broker.roles.controller && !broker.stands_alone());
    assert_eq!(broker.log_dirs, ["/a", "/b"].map(std::path::PathBuf::from));
    assert_eq!(broker.metadata_log_dir, std::path::PathBuf::from("/a"));

    let controller = node(CONTROLLER);
    assert!(!controller.roles.broker && controller.roles.controller && !controller.stands_alone());
    assert!(controller.listeners.is_empty() && controller.advertised_listeners.is_empty());
}

#[test]
fn a_combined_node_with_other_controllers_does_not_stand_alone() {
    let others =
        ALONE.replace("bootstrap.servers=localhost:9093", "bootstrap.servers=localhost:9093,other:9093");
    assert!(!node(&others).stands_alone());
    let voters = "controller.quorum.voters=1@localhost:9093,2@other:9093\n";
    assert!(!node(&format!("{ALONE}{voters}")).stands_alone());
    assert!(node(&format!("{ALONE}controller.quorum.voters=1@localhost:9093\n")).stands_alone());
}

#[test]
fn several_listeners_with_names_of_their_own() {
    let more = "\
listeners=INTERNAL://10.0.0.1:9092,external://:9094,CONTROLLER://:9093
advertised.listeners=INTERNAL://10.0.0.1:9092,EXTERNAL://kafka.example:19094
listener.security.protocol.map=INTERNAL:PLAINTEXT, EXTERNAL:PLAINTEXT ,CONTROLLER:PLAINTEXT
inter.broker.listener.name=internal
";
    let node = node(&format!("{ALONE}{more}"));
    let shown: Vec<String> = node.listeners.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["INTERNAL://10.0.0.1:9092", "EXTERNAL://:9094"]);
    let shown: Vec<String> = node.advertised_listeners.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["INTERNAL://10.0.0.1:9092", "EXTERNAL://kafka.example:19094"]);
    assert_eq!(node.inter_broker_listener.as_str(), "INTERNAL");
}

#[test]
fn bound_ports_and_this_host_are_advertised() {
    let node = node(&ALONE.replace("PLAINTEXT://localhost:9092", "PLAINTEXT://:0"));
    let bound = |name: &ListenerName| (name.as_str() == "PLAINTEXT").then_some(40123);
    let advertised = node.advertised(&bound, "host.example");
    assert_eq!(advertised[0].to_string(), "PLAINTEXT://host.example:40123");
}

#[test]
fn controllers_are_told_where_they_listen_or_where_they_are_advertised() {
    let any = ALONE.replace("CONTROLLER://localhost:9093", "CONTROLLER://0.0.0.0:0");
    let bound = |_: &ListenerName| Some(40124);
    let told = |text: &str| node(text).advertised_controllers(&bound, "host.example")[0].to_string();
    assert_eq!(told(&any), "CONTROLLER://host.example:40124");
    let explicit = format!("{any}advertised.listeners=PLAINTEXT://a:9092,CONTROLLER://c:19093\n");
    assert_eq!(told(&explicit), "CONTROLLER://c:19093");
}

#[test]
fn listeners_that_cannot_be() {
    let cases = [
        ("listeners=9092", "'9092' is not of the form NAME://host:port"),
        (
            "listeners=PLAINTEXT://:9092,PLAINTEXT://:9094,CONTROLLER://:9093",
            "two listeners have the name PLAINTEXT",
        ),
        ("listeners=PLAINTEXT://:9093,CONTROLLER://:9093", "have the same port 9093"),
        ("listeners=CLIENTS://:9092,CONTROLLER://:9093", "gives listener CLIENTS no security protocol"),
        (
            "listeners=CONTROLLER://:9093",
            "a broker needs a listener that is not in controller.listener.names",
        ),
        ("listeners=PLAINTEXT://:9092", "CONTROLLER is not in listeners"),
        (
            "listeners=PLAINTEXT://0.0.0.0:9092,CONTROLLER://:9093",
            "set advertised.listeners to an address that can be reached",
        ),
        ("advertised.listeners=PLAINTEXT://0.0.0.0:9092", "cannot be told to clients"),
        ("advertised.listeners=SSL://a:9092", "SSL is not in listeners"),
        ("advertised.listeners=SSL://a:9092", "PLAINTEXT is not among the advertised listeners, SSL"),
        ("inter.broker.listener.name=OTHER", "OTHER is not in listener.security.protocol.map"),
        (
            "inter.broker.listener.name=PLAINTEXT\nsecurity.inter.broker.protocol=PLAINTEXT",
            "cannot be set together",
        ),
        ("security.inter.broker.protocol=SSL", "SSL is not among the advertised listeners"),
        (
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT",
            "gives listener CONTROLLER no security protocol",
        ),
        ("listener.security.protocol.map=PLAINTEXT:ROT13,CONTROLLER:PLAINTEXT", "names no security protocol"),
        ("listener.security.protocol.map=PLAINTEXT", "is not of the form NAME:PROTOCOL"),
        ("early.start.listeners=NOWHERE", "NOWHERE is not in listeners"),
    ];
    for (more, expected) in cases {
        assert_refused(ALONE, more, expected);
    }
    let shared = "listeners=PLAINTEXT://127.0.0.1:9093,CONTROLLER://[::1]:9093";
    assert_eq!(problems(ALONE, shared), Vec::<String>::new(), "one IPv4, one IPv6");
}

#[test]
fn only_plaintext_is_served_yet() {
    let more = "listeners=SSL://:9092,CONTROLLER://:9093\nsecurity.inter.broker.protocol=SSL\n\
                listener.security.protocol.map=SSL:SSL,CONTROLLER:PLAINTEXT";
    assert_refused(ALONE, more, "listener SSL uses SSL, which is not served yet");
    let more = "listeners=CLIENTS://:9092,CONTROLLER://:9093\ninter.broker.listener.name=CLIENTS\n\
                listener.security.protocol.map=CLIENTS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT";
    assert_refused(ALONE, more, "listener CLIENTS uses SASL_PLAINTEXT, which is not served yet");
}

#[test]
fn quorums_that_cannot_be() {
    assert_refused(ALONE, "controller.quorum.bootstrap.servers=", "must name at least one controller");
    assert_refused(ALONE, "controller.quorum.voters=2@other:9093", "must include this controller, node.id 1");
    assert_refused(ALONE, "controller.quorum.voters=1@0.0.0.0:9093", "which nobody can connect to");
    assert_refused(ALONE, "controller.quorum.voters=1-other:9093", "is not of the form id@host:port");
    assert_refused(ALONE, "process.roles=broker,chair", "'chair' is not one of broker, controller");
    assert_refused(BROKER, "controller.quorum.voters=1@localhost:9093", "cannot include node.id 1");
    assert_refused(BROKER, "controller.quorum.auto.join.enable=true", "is for controllers only");
    assert_refused(BROKER, "listeners=PLAINTEXT://:9092,CONTROLLER://:9093", "cannot listen as a controller");
    assert_refused(BROKER, "controller.listener.names=SSL", "listener SSL uses SSL, which is not served yet");
    assert_refused(CONTROLLER, "listeners=CONTROLLER://:9093,PLAINTEXT://:9092", "this node is no broker");
    assert_refused(
        CONTROLLER,
        "inter.broker.listener.name=CONTROLLER",
        "cannot contain inter.broker.listener.name",
    );
}

#[test]
fn a_problem_is_shown_where_it_was_set() {
    let errors = alone_with("advertised.listeners=SSL://a:9092\n").unwrap_err();
    let shown = errors.to_string();
    assert!(
        shown.contains("server.properties:7: advertised.listeners=SSL://a:9092: SSL is not in listeners"),
        "{shown}"
    );
    assert!(shown.contains("\n  inter.broker.listener.name: PLAINTEXT is not among"), "{shown}");
}
