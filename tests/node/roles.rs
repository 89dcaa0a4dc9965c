//! A cluster of nodes with different roles in this process: controllers, a node that is both, and a broker alone. What one
//! of them changes, all of them know.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use floodmark::broker::loggers::Loggers;
use floodmark::cli::node::RunningNode;
use floodmark::config::{self, Sources};
use floodmark::types::ErrorCode;
use floodmark::wire::messages::*;
use tempfile::TempDir;

use super::admin::incremental;
use super::client::Client;
use super::requests::{assert_code, new_topic, text};

/// Nobody's connections come from here, so none can take a port before its node does.
const HOST: &str = "127.0.0.3";
const CLUSTER_ID: &str = "MvDxzVmcRsaTz33bUuRU6A";

struct Member {
    id: i32,
    roles: &'static str,
    controller_port: u16,
    /// Of its own.
    settings: &'static [(&'static str, &'static str)],
    dir: TempDir,
}

impl Member {
    fn new(id: i32, roles: &'static str) -> Member {
        let socket = TcpListener::bind((HOST, 0)).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let meta = format!("version=1\ncluster.id={CLUSTER_ID}\nnode.id={id}\n");
        std::fs::write(dir.path().join("meta.properties"), meta).unwrap();
        Member { id, roles, controller_port: socket.local_addr().unwrap().port(), settings: &[], dir }
    }

    fn with(self, settings: &'static [(&'static str, &'static str)]) -> Member {
        Member { settings, ..self }
    }

    fn is(&self, role: &str) -> bool {
        self.roles.contains(role)
    }

    async fn begin(&self, voters: &str) -> RunningNode {
        let mut listeners = Vec::new();
        if self.is("broker") {
            listeners.push(format!("PLAINTEXT://{HOST}:0"));
        }
        if self.is("controller") {
            listeners.push(format!("CONTROLLER://{HOST}:{}", self.controller_port));
        }
        let settings = [
            ("node.id", self.id.to_string()),
            ("process.roles", self.roles.to_owned()),
            ("listeners", listeners.join(",")),
            ("controller.listener.names", "CONTROLLER".to_owned()),
            ("controller.quorum.voters", voters.to_owned()),
            ("log.dirs", self.dir.path().display().to_string()),
            ("num.shard.threads", "1".to_owned()),
        ];
        let own = self.settings.iter().map(|(key, value)| (*key, (*value).to_owned()));
        let overrides = settings.into_iter().chain(own).map(|(key, value)| (key.to_owned(), value)).collect();
        let config = config::load(&Sources { overrides, ..Sources::default() });
        let config = config.unwrap_or_else(|errors| panic!("{errors}"));
        RunningNode::begin(&config, Arc::new(Loggers::detached())).await.unwrap()
    }
}

fn address(node: &RunningNode, listener: &str) -> SocketAddr {
    node.addresses().iter().find(|(name, _)| **name == *listener).unwrap().1
}

async fn create(client: &mut Client, topic: &str) {
    let request =
        CreateTopicsRequest::default().with_topics(vec![new_topic(topic, 1, &[])]).with_timeout_ms(60_000);
    let response = client.call(7, request).await;
    assert_code(response.topics[0].error_code, ErrorCode::None, topic);
}

/// Waits until a node tells all these topics.
async fn knows(client: &mut Client, topics: &[&str]) {
    loop {
        let response = client.call(12, MetadataRequest::default().with_topics(None)).await;
        let told: Vec<_> = response.topics.iter().filter_map(|topic| topic.name.as_ref()).collect();
        if topics.iter().all(|topic| told.iter().any(|told| told.as_str() == *topic)) {
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_all_roles_are_one_cluster() {
    let members = [
        Member::new(1, "controller"),
        Member::new(2, "controller"),
        Member::new(3, "broker,controller"),
        Member::new(4, "broker"),
    ];
    let voters: Vec<String> = members[..3]
        .iter()
        .map(|member| format!("{}@{HOST}:{}", member.id, member.controller_port))
        .collect();
    let voters = voters.join(",");
    let mut nodes = Vec::new();
    for member in &members {
        nodes.push(member.begin(&voters).await);
    }
    // The quorum comes up while they wait for it.
    let opened = futures_util::future::join_all(nodes.iter_mut().map(RunningNode::open)).await;
    for opened in opened {
        opened.unwrap();
    }
    let mut both = Client::connect(address(&nodes[2], "PLAINTEXT")).await;
    let mut broker = Client::connect(address(&nodes[3], "PLAINTEXT")).await;
    let mut created = Vec::new();
    for (nth, client) in [&mut both, &mut broker].into_iter().enumerate() {
        let topic = ["by-both", "by-broker"][nth];
        create(client, topic).await;
        created.push(topic);
    }
    // Controllers take the same request, whichever of them leads.
    for (node, topic) in nodes.iter().zip(["by-1", "by-2", "by-3"]) {
        let mut controller = Client::connect(address(node, "CONTROLLER")).await;
        create(&mut controller, topic).await;
        created.push(topic);
    }
    knows(&mut both, &created).await;
    knows(&mut broker, &created).await;
    for node in nodes.into_iter().rev() {
        node.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_waits_for_its_quorum_can_be_stopped() {
    let member = Member::new(1, "broker,controller");
    let voters = format!("1@{HOST}:{},2@{HOST}:1,3@{HOST}:2", member.controller_port);
    let mut node = member.begin(&voters).await;
    tokio::select! {
        biased;
        opened = node.open() => panic!("there is no quorum: {opened:?}"),
        () = tokio::task::yield_now() => {}
    }
    node.stop().await;
    // It is as it was, and begins anew.
    member.begin(&voters).await.stop().await;
}

/// How many partitions a topic has, once the node knows it.
async fn partitions(client: &mut Client, topic: &str) -> usize {
    knows(client, &[topic]).await;
    let response = client.call(12, MetadataRequest::default().with_topics(None)).await;
    let told =
        response.topics.iter().find(|told| told.name.as_ref().is_some_and(|name| name.as_str() == topic));
    told.unwrap().partitions.len()
}

/// Asks for the metadata of a topic that is then made.
async fn wants(client: &mut Client, topic: &'static str) {
    let name = Some(kafka_protocol::protocol::StrBytes::from_static_str(topic).into());
    let asked = metadata_request::MetadataRequestTopic::default().with_name(name);
    let request =
        MetadataRequest::default().with_topics(Some(vec![asked])).with_allow_auto_topic_creation(true);
    client.call(12, request).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_says_nothing_is_as_the_settings_of_the_controller_have_it() {
    let members = [
        Member::new(1, "controller").with(&[
            ("num.partitions", "5"),
            ("default.replication.factor", "2"),
            ("log.segment.bytes", "1048576"),
        ]),
        Member::new(2, "broker"),
        Member::new(3, "broker").with(&[("num.partitions", "3"), ("log.segment.bytes", "2097152")]),
    ];
    let voters = format!("1@{HOST}:{}", members[0].controller_port);
    let mut nodes = Vec::new();
    for member in &members {
        nodes.push(member.begin(&voters).await);
    }
    for opened in futures_util::future::join_all(nodes.iter_mut().map(RunningNode::open)).await {
        opened.unwrap();
    }
    let mut without = Client::connect(address(&nodes[1], "PLAINTEXT")).await;
    let mut with = Client::connect(address(&nodes[2], "PLAINTEXT")).await;
    // What is made on demand is as the broker's own settings have it, as far as they say something.
    for (client, topic, expected) in [(&mut without, "on-demand", 5), (&mut with, "as-the-broker-has-it", 3)]
    {
        wants(client, topic).await;
        assert_eq!(partitions(client, topic).await, expected, "{topic}");
    }
    // Of what a client creates they say nothing.
    let topic = |name: &str| vec![new_topic(name, -1, &[]).with_replication_factor(-1)];
    for (client, name) in [(&mut without, "asked-of-one"), (&mut with, "asked-of-the-other")] {
        let request = CreateTopicsRequest::default().with_topics(topic(name)).with_timeout_ms(60_000);
        let response = client.call(7, request).await;
        assert_code(response.topics[0].error_code, ErrorCode::None, name);
        assert_eq!(
            (response.topics[0].num_partitions, response.topics[0].replication_factor),
            (5, 2),
            "{name}"
        );
    }
    // The answer tells the rest of them too, whether or not the topic is made, while a broker has its own settings.
    let segments = |response: &CreateTopicsResponse| {
        let configs = response.topics[0].configs.as_ref().unwrap();
        let told = configs.iter().find(|told| told.name.as_str() == "segment.bytes").unwrap();
        (told.value.as_ref().map(ToString::to_string), told.config_source)
    };
    for (client, own) in [(&mut without, ("1073741824", 5)), (&mut with, ("2097152", 4))] {
        for validate_only in [true, false] {
            let name = format!("described-by-{}", own.0);
            let request = CreateTopicsRequest::default()
                .with_topics(vec![new_topic(&name, 1, &[])])
                .with_timeout_ms(60_000)
                .with_validate_only(validate_only);
            let response = client.call(5, request).await;
            assert_eq!(segments(&response), (Some("1048576".to_owned()), 4), "{name}");
        }
        let resource = describe_configs_request::DescribeConfigsResource::default()
            .with_resource_type(2)
            .with_resource_name(text("asked-of-one"));
        let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
        let response = client.call(4, request).await;
        let told = response.results[0].configs.iter().find(|told| told.name.as_str() == "segment.bytes");
        let told = told.map(|told| (told.value.as_ref().unwrap().to_string(), told.config_source));
        assert_eq!(told, Some((own.0.to_owned(), own.1)), "the topic as the broker has it");
    }
    for node in nodes.into_iter().rev() {
        node.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_alters_every_node_that_is_registered_and_a_broker_itself_alone() {
    let members = [Member::new(1, "controller"), Member::new(2, "broker")];
    let voters = format!("1@{HOST}:{}", members[0].controller_port);
    let mut nodes = Vec::new();
    for member in &members {
        nodes.push(member.begin(&voters).await);
    }
    for opened in futures_util::future::join_all(nodes.iter_mut().map(RunningNode::open)).await {
        opened.unwrap();
    }
    let mut controller = Client::connect(address(&nodes[0], "CONTROLLER")).await;
    let mut broker = Client::connect(address(&nodes[1], "PLAINTEXT")).await;
    let (registered, unknown) = (ErrorCode::None, ErrorCode::BrokerIdNotRegistered);
    for (id, by_controller, by_broker) in [
        ("1", registered, ErrorCode::InvalidRequest),
        ("2", registered, registered),
        ("9", unknown, ErrorCode::InvalidRequest),
        ("", registered, registered),
        ("x", ErrorCode::InvalidRequest, ErrorCode::InvalidRequest),
    ] {
        for (client, expected) in [(&mut controller, by_controller), (&mut broker, by_broker)] {
            let request = incremental(4, id, &[("log.cleaner.threads", 0, Some("2"))]);
            let response = client.call(1, request).await;
            assert_code(response.responses[0].error_code, expected, id);
            if id.is_empty() {
                // The old form would take away what the cluster must have.
                continue;
            }
            let config = alter_configs_request::AlterableConfig::default()
                .with_name(text("log.cleaner.threads"))
                .with_value(Some(text("2")));
            let resource = alter_configs_request::AlterConfigsResource::default()
                .with_resource_type(4)
                .with_resource_name(text(id))
                .with_configs(vec![config]);
            let response =
                client.call(2, AlterConfigsRequest::default().with_resources(vec![resource])).await;
            assert_code(response.responses[0].error_code, expected, id);
        }
    }
    // Whether a broker has a log directory, the broker itself says.
    let dir = members[1].dir.path().to_str().unwrap();
    let cordons = |dirs: &str| {
        incremental(4, "2", &[("cordoned.log.dirs", 0, Some(dirs)), ("log.cleaner.threads", 1, None)])
    };
    for (by_controller, dirs, expected) in [
        (true, dir, ErrorCode::InvalidConfig),
        (false, dir, ErrorCode::None),
        (true, dir, ErrorCode::None),
        (true, "", ErrorCode::None),
    ] {
        let client = if by_controller { &mut controller } else { &mut broker };
        let response = client.call(1, cordons(dirs)).await;
        assert_code(response.responses[0].error_code, expected, dirs);
    }
    for node in nodes.into_iter().rev() {
        node.stop().await;
    }
}
