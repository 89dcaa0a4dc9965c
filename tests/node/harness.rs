//! A node of its own for a test: on a temporary directory and ports that the system chooses.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use floodmark::broker::loggers::Loggers;
use floodmark::cli::node::RunningNode;
use floodmark::config::{self, Sources};
use tempfile::TempDir;

use super::client::Client;
use super::requests;

/// Records of tests are of 1970. Where retention is not what is tested, it never comes to look, however slow a test is.
const NO_RETENTION: (&str, &str) = ("log.initial.task.delay.ms", "3600000");

pub struct TestNode {
    node: RunningNode,
    pub dir: TempDir,
    overrides: Vec<(String, String)>,
}

impl TestNode {
    /// A node with a listener for brokers and one for controllers, and these settings on top.
    pub async fn start(settings: &[(&str, &str)]) -> TestNode {
        let dir = tempfile::tempdir().unwrap();
        let own = [
            ("listeners", "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"),
            ("num.shard.threads", "2"),
            ("log.dirs", dir.path().to_str().unwrap()),
            NO_RETENTION,
        ];
        let pairs = own.iter().chain(settings);
        let overrides = pairs.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        TestNode::start_in(dir, overrides).await
    }

    /// A node with several log directories, of these names in its own directory.
    pub async fn with_log_dirs(names: &[&str]) -> TestNode {
        let dir = tempfile::tempdir().unwrap();
        let paths: Vec<String> =
            names.iter().map(|name| dir.path().join(name).display().to_string()).collect();
        let settings = [
            ("listeners", "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0".to_owned()),
            ("log.dirs", paths.join(",")),
            (NO_RETENTION.0, NO_RETENTION.1.to_owned()),
        ];
        let overrides = settings.map(|(key, value)| (key.to_owned(), value));
        TestNode::start_in(dir, overrides.into()).await
    }

    /// A controller of the cluster that `other` belongs to, formatted without voters, with these settings on top.
    pub async fn controller_beside(other: &TestNode, id: &str, settings: &[(&str, &str)]) -> TestNode {
        let dir = tempfile::tempdir().unwrap();
        let server = other.controller_address().to_string();
        let own = [
            ("process.roles", "controller"),
            ("node.id", id),
            ("listeners", "CONTROLLER://127.0.0.1:0"),
            ("controller.listener.names", "CONTROLLER"),
            ("controller.quorum.bootstrap.servers", &server),
            ("log.dirs", dir.path().to_str().unwrap()),
        ];
        let overrides: Vec<(String, String)> =
            own.iter().chain(settings).map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let mut format = std::process::Command::new(env!("CARGO_BIN_EXE_floodmark"));
        format.args([
            "storage",
            "format",
            "--no-initial-controllers",
            "--cluster-id",
            &other.property("cluster.id"),
        ]);
        for (key, value) in &overrides {
            format.arg("--override").arg(format!("{key}={value}"));
        }
        assert!(format.env_clear().output().unwrap().status.success(), "the controller is formatted");
        TestNode::start_in(dir, overrides).await
    }

    /// What `meta.properties` says.
    pub fn property(&self, key: &str) -> String {
        let text = std::fs::read_to_string(self.dir.path().join("meta.properties")).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.unwrap().to_owned()
    }

    async fn start_in(dir: TempDir, overrides: Vec<(String, String)>) -> TestNode {
        let sources = Sources { overrides: overrides.clone(), ..Sources::default() };
        let config = config::load(&sources).unwrap_or_else(|errors| panic!("{errors}"));
        let node = RunningNode::start(&config, Arc::new(Loggers::detached())).await.unwrap();
        TestNode { node, dir, overrides }
    }

    /// A node with a topic that has this many partitions, and a connection to it.
    pub async fn with_topic(settings: &[(&str, &str)], topic: &str, partitions: i32) -> (TestNode, Client) {
        let node = TestNode::start(settings).await;
        let mut client = node.connect().await;
        requests::create_topic(&mut client, topic, partitions, &[]).await;
        (node, client)
    }

    pub fn address(&self, listener: &str) -> SocketAddr {
        let found = self.node.addresses().iter().find(|(name, _)| **name == *listener);
        found.expect("the node has the listener").1
    }

    pub fn broker_address(&self) -> SocketAddr {
        self.address("PLAINTEXT")
    }

    pub async fn connect(&self) -> Client {
        Client::connect(self.broker_address()).await
    }

    pub fn controller_address(&self) -> SocketAddr {
        self.address("CONTROLLER")
    }

    pub async fn connect_to(&self, listener: &str) -> Client {
        Client::connect(self.address(listener)).await
    }

    pub async fn connect_to_controller(&self) -> Client {
        Client::connect(self.controller_address()).await
    }

    /// Stops the node in an orderly way and starts it again on the same directory.
    pub async fn restart(self) -> TestNode {
        self.restart_after(|_| {}).await
    }

    /// The same, with something that happens to the directory in between.
    pub async fn restart_after(self, change: impl FnOnce(&Path)) -> TestNode {
        let TestNode { node, dir, overrides } = self;
        node.stop().await;
        change(dir.path());
        TestNode::start_in(dir, overrides).await
    }

    /// Stops the node in an orderly way and begins it again, after something that happens to the directory. It does not serve before
    /// [`open`](TestNode::open).
    pub async fn begin_after(self, change: impl FnOnce(&Path)) -> TestNode {
        let TestNode { node, dir, overrides } = self;
        node.stop().await;
        change(dir.path());
        let sources = Sources { overrides: overrides.clone(), ..Sources::default() };
        let config = config::load(&sources).unwrap_or_else(|errors| panic!("{errors}"));
        let node = RunningNode::begin(&config, Arc::new(Loggers::detached())).await.unwrap();
        TestNode { node, dir, overrides }
    }

    /// Lets a node that has begun serve.
    pub async fn open(&mut self) {
        self.node.open().await.unwrap();
    }

    pub async fn stop(self) {
        self.node.stop().await;
    }
}
