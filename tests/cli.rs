//! The command line as scripts see it: what is printed where, and the exit codes.

#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

/// A place with a configuration file for a node on two directories.
struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let place = Place { dir };
        place.configure("");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn file(&self) -> PathBuf {
        self.path("server.properties")
    }

    /// Writes the configuration, with these lines at its end.
    fn configure(&self, lines: &str) {
        let (a, b) = (self.path("a"), self.path("b"));
        let text = format!(
            "process.roles=broker,controller\nnode.id=1\nlisteners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0\n\
             controller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@127.0.0.1:9093\n\
             log.dirs={},{}\n{lines}",
            a.display(),
            b.display()
        );
        std::fs::write(self.file(), text).unwrap();
    }

    /// Runs a command with the configuration file.
    fn run(&self, command: &[&str]) -> Ended {
        let file = self.file();
        run(&[command, &["--config", file.to_str().unwrap()]].concat())
    }

    /// Formats both directories and gives the cluster's id.
    fn format(&self) -> String {
        let id = random_uuid();
        self.run(&["storage", "format", "--cluster-id", &id]).expect(0);
        id
    }

    /// A node that runs in a process of its own.
    fn start(&self) -> Node {
        let mut node = self.spawn();
        node.wait_for("[KafkaRaftServer nodeId=1] Kafka Server started");
        node
    }

    fn spawn(&self) -> Node {
        let mut command = floodmark();
        let mut child = command
            .arg("--config")
            .arg(self.file())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Node { child, lines: Box::new(lines.map_while(Result::ok)) }
    }
}

/// What a command left.
struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ended {
    #[track_caller]
    fn expect(self, code: i32) -> Ended {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }

    #[track_caller]
    fn says(self, words: &str) -> Ended {
        assert!(self.stdout.contains(words), "no '{words}' in: {}", self.stdout);
        self
    }

    #[track_caller]
    fn complains(self, words: &str) -> Ended {
        assert!(self.stderr.contains(words), "no '{words}' in: {}", self.stderr);
        self
    }
}

/// The program without what the environment of the test would change.
fn floodmark() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_floodmark"));
    command.env_clear();
    command
}

fn run(arguments: &[&str]) -> Ended {
    ended(floodmark().args(arguments))
}

/// Runs the program under another name: the first word of the line.
fn run_as(line: &str) -> Ended {
    let (name, arguments) = line.split_once(' ').unwrap();
    ended(floodmark().arg0(name).args(arguments.split_whitespace()))
}

fn ended(command: &mut Command) -> Ended {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
}

fn random_uuid() -> String {
    run(&["storage", "random-uuid"]).expect(0).stdout.trim_end().to_owned()
}

/// A process, killed when the test is over.
struct Node {
    child: Child,
    lines: Box<dyn Iterator<Item = String>>,
}

impl Node {
    fn wait_for(&mut self, words: &str) {
        assert!(self.lines.any(|line| line.contains(words)), "the process ended without '{words}'");
    }

    /// Where its listener of this name is.
    fn address_of(&mut self, listener: &str) -> String {
        let said = format!("Listener {listener} on ");
        let line = self.lines.find(|line| line.contains(&said)).unwrap();
        line.split_once(&said).unwrap().1.to_owned()
    }

    /// Asks the process to end, and waits for that.
    fn terminate(mut self) -> Option<i32> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.wait_for("Stopped");
        self.child.wait().unwrap().code()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn random_ids_are_kafkas() {
    let (one, two) = (random_uuid(), random_uuid());
    assert_ne!(one, two);
    for id in [one, two] {
        assert_eq!(id.len(), 22);
        assert!(
            id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') && !id.starts_with('-')
        );
    }
}

#[test]
fn directories_are_formatted_once() {
    let place = Place::new();
    place.run(&["storage", "info"]).expect(1).says("Found problems:").says("does not exist");
    let id = place.format();
    let info = place.run(&["storage", "info"]).expect(0);
    info.says("Found log directories:").says(&format!("cluster.id={id}")).says("node.id=1");

    let again = ["storage", "format", "--cluster-id", &id];
    place.run(&again).expect(1).complains("is already formatted");
    let ignoring = [&again[..], &["--ignore-formatted"]].concat();
    place.run(&ignoring).expect(0).says("All of the log directories are already formatted.");
    std::fs::remove_dir_all(place.path("b")).unwrap();
    place.run(&ignoring).expect(0).says("Formatting data directory").says("/b with metadata.version 4.4-IV2");

    let other = random_uuid();
    let other = ["storage", "format", "--ignore-formatted", "--cluster-id", &other];
    place.run(&other).expect(1).complains("Invalid cluster.id in");
}

#[test]
fn a_directory_is_verified_while_no_node_has_it() {
    let place = Place::new();
    place.run(&["storage", "verify"]).expect(0).says("does not exist");
    place.format();
    place.run(&["storage", "verify"]).expect(0).says("0 partitions, 0 records");
    let partition = place.path("a").join("topic-0");
    std::fs::create_dir(&partition).unwrap();
    let log = partition.join("00000000000000000000.log");
    std::fs::write(&log, b"").unwrap();
    place
        .run(&["storage", "verify"])
        .expect(0)
        .says("1 partitions")
        .says("is missing; a start builds it anew");
    std::fs::write(partition.join("00000000000000000100.log"), b"").unwrap();
    std::fs::write(&log, [0xff; 100]).unwrap();
    let told = place.run(&["storage", "verify"]).expect(1);
    told.says(&format!("damaged: {} at 0: 100 bytes are no whole batch", log.display()));
    std::fs::remove_dir_all(&partition).unwrap();
    let _node = place.start();
    place.run(&["storage", "verify"]).expect(1).complains("in use");
}

#[test]
fn what_cannot_be_formatted_is_refused_before_anything_is_written() {
    let place = Place::new();
    let id = random_uuid();
    let voter = "1@127.0.0.1:9093:MvDxzVmcRsaTz33bUuRU6A";
    for (arguments, words) in [
        (vec!["--cluster-id", "two words"], "the id must be one word"),
        (vec!["--cluster-id", &id, "--release-version", "9.9"], "9.9 is not a metadata version"),
        (vec!["--cluster-id", &id, "--feature", "group.version=many"], "not a level"),
        (vec!["--cluster-id", &id, "--feature", "no.such.feature=1"], "no.such.feature"),
        (vec!["--cluster-id", &id, "--feature", "kraft.version=2"], "kraft.version"),
        (
            vec!["--cluster-id", &id, "--feature", "kraft.version=1"],
            "not possible with controller.quorum.voters",
        ),
        (vec!["--cluster-id", &id, "--standalone"], "controller.quorum.voters is set"),
        (vec!["--cluster-id", &id, "--initial-controllers", voter], "controller.quorum.voters is set"),
        (vec!["--cluster-id", &id, "--standalone", "--no-initial-controllers"], "only one of"),
        (vec![], "--cluster-id"),
    ] {
        place.run(&[&["storage", "format"], &arguments[..]].concat()).expect(1).complains(words);
        assert!(!place.path("a").exists() && !place.path("b").exists(), "{arguments:?}");
    }
    let older = ["storage", "format", "--cluster-id", &id, "--release-version", "4.0"];
    place.run(&older).expect(0).says("Formatting metadata directory").says("with metadata.version 4.0-IV3");
}

#[test]
fn a_dynamic_quorum_begins_with_the_voters_that_it_is_formatted_with() {
    let place = Place::new();
    let lines = "controller.quorum.voters=\ncontroller.quorum.bootstrap.servers=127.0.0.1:9093\n";
    let id = random_uuid();
    let format = |options: &[&str], lines: &str| {
        for dir in ["a", "b"] {
            let _ = std::fs::remove_dir_all(place.path(dir));
        }
        place.configure(lines);
        place.run(&[&["storage", "format", "--cluster-id", &id], options].concat())
    };
    format(&[], lines).expect(1).complains("one of --standalone, --initial-controllers");
    format(&["-f", "kraft.version=0", "-N"], lines)
        .expect(1)
        .complains("controller.quorum.voters, which is not");
    format(&["-I", "1@host:9093"], lines).expect(1).complains("ID@HOST:PORT:DIRECTORY-ID");
    format(&["-s"], lines)
        .expect(0)
        .says("Formatting dynamic metadata voter directory")
        .says("data directory");
    format(&["-N"], lines).expect(0).says("Formatting metadata directory");
    let directory = "JEXY6aqzQY-32P5TStzaFg";
    let others = format!("2@127.0.0.1:9094:{directory}");
    format(&["-I", &others], lines).expect(0).says("Formatting dynamic metadata directory");
    // Who is a voter has the directory that the others know it by.
    let all = format!("1@127.0.0.1:9093:MvDxzVmcRsaTz33bUuRU6A,{others}");
    format(&["--initial-controllers", &all], lines).expect(0);
    let info = place.run(&["storage", "info"]).expect(0);
    info.says("directory.id=MvDxzVmcRsaTz33bUuRU6A");

    let broker = format!("{lines}process.roles=broker\nlisteners=PLAINTEXT://127.0.0.1:0\n");
    format(&["-s"], &broker).expect(1).complains("--standalone is for controllers");
    format(&[], &broker).expect(0).says("Formatting metadata directory");
    assert!(!place.path("a").join("__cluster_metadata-0").exists(), "only controllers begin clusters");
}

#[test]
fn info_finds_what_does_not_fit_together() {
    let place = Place::new();
    place.format();
    let foreign = Place::new();
    foreign.format();
    let properties = "meta.properties";
    std::fs::copy(foreign.path("b").join(properties), place.path("b").join(properties)).unwrap();
    place.run(&["storage", "info"]).expect(1).says("belongs to another cluster");
    std::fs::remove_dir_all(place.path("b")).unwrap();
    std::fs::write(place.path("b"), "").unwrap();
    place.run(&["storage", "info"]).expect(1).says("is not a directory");
}

#[test]
fn a_wrong_configuration_is_told_with_file_key_value_and_reason() {
    let place = Place::new();
    let file = place.file();
    let file = file.to_str().unwrap();
    run(&["config", "check", file]).expect(0).says("the configuration is valid");

    place.configure("num.partitions=many\nlog.segment.bytes=1\n");
    let told = format!("{file}:7: num.partitions=many: must be a whole number");
    let checked = run(&["config", "check", file]).expect(1).complains(&told);
    // All that is wrong is told at once.
    checked.complains("log.segment.bytes=1");
    // The node does not start on it either.
    place.run(&[]).expect(1).complains(&told);
    assert!(!place.path("a").exists());

    place.configure("no.such.key=1\nzookeeper.connect=localhost\n");
    run(&["config", "check", file]).expect(0).says("warning: ").says("no.such.key is not a known property");
    let overridden = ["config", "check", file, "--override", "num.partitions=0"];
    run(&overridden).expect(1).complains("num.partitions=0");
    run(&["config", "check", "no/such/file"]).expect(1).complains("no/such/file");
    run(&["--override", "novalue"]).expect(2).complains("KEY=VALUE");
    run(&["--bogus"]).expect(2);
}

#[test]
fn a_node_runs_until_it_is_told_to_stop_and_leaves_its_metadata() {
    let place = Place::new();
    place.run(&["metadata", "dump"]).expect(1).complains("has no metadata");
    let id = place.format();
    let node = place.start();
    place.run(&[]).expect(1).complains("is in use by another process");
    assert_eq!(node.terminate(), Some(0));

    let dump = place.run(&["metadata", "dump"]).expect(0);
    let lines: Vec<serde_json::Value> =
        dump.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().any(|line| line.get("entry").is_some()), "entries of the log");
    let registered = |line: &serde_json::Value| line.to_string().contains("REGISTER_BROKER_RECORD");
    assert!(lines.iter().any(|line| line.get("image").is_some() && registered(line)), "{}", dump.stdout);

    let output = place.path("out");
    std::fs::create_dir(&output).unwrap();
    let exported = place.run(&["metadata", "export", output.to_str().unwrap()]).expect(0);
    let snapshot = Path::new(exported.stdout.trim_end());
    assert!(snapshot.starts_with(&output) && snapshot.extension().unwrap() == "checkpoint");
    assert!(std::fs::metadata(snapshot).unwrap().len() > 0);

    // It starts on what it left, as the same cluster.
    assert_eq!(place.start().terminate(), Some(0));
    place.run(&["storage", "info"]).expect(0).says(&id);
}

#[test]
fn a_damaged_directory_takes_only_itself_out_of_service() {
    let place = Place::new();
    place.format();
    let properties = |name: &str| place.path(name).join("meta.properties");
    let whole = std::fs::read(properties("a")).unwrap();
    std::fs::write(properties("b"), "version=9\n").unwrap();
    let mut node = place.spawn();
    node.wait_for("/b is out of service");
    node.wait_for("Kafka Server started");
    node.wait_for("Transitioning from RECOVERY to RUNNING");
    assert_eq!(node.terminate(), Some(0));

    // The metadata directory is another matter, and so is the last one.
    std::fs::write(properties("a"), "version=9\n").unwrap();
    place.run(&[]).expect(1).complains("/a: reading what it is formatted for failed");
    std::fs::write(properties("a"), whole).unwrap();
    assert_eq!(place.start().terminate(), Some(0));
}

#[test]
fn help_teaches_and_the_version_is_told() {
    run(&["--version"]).expect(0).says(env!("CARGO_PKG_VERSION"));
    run(&["--help"]).expect(0).says("storage").says("Examples:");
    run(&["completions", "bash"]).expect(0).says("floodmark");
}

/// The first of `count` ports in a row that nobody listens on.
fn free_ports(count: u16) -> u16 {
    let bind = |port: u16| std::net::TcpListener::bind(("127.0.0.1", port));
    loop {
        let first = bind(0).unwrap();
        let port = first.local_addr().unwrap().port();
        let others: Vec<_> =
            (1..count).map_while(|n| port.checked_add(n)).map_while(|p| bind(p).ok()).collect();
        if others.len() + 1 == usize::from(count) {
            return port;
        }
    }
}

/// A throw-away cluster whose temporary directory is in `temporary`.
fn start_dev(temporary: &Path, brokers: u16, options: &[&str]) -> (Node, u16) {
    let port = free_ports(2 * brokers);
    (start_dev_at(port, temporary, brokers, options), port)
}

fn start_dev_at(port: u16, temporary: &Path, brokers: u16, options: &[&str]) -> Node {
    let mut child = floodmark()
        .env("TMPDIR", temporary)
        .args(["dev", "--brokers", &brokers.to_string(), "--port", &port.to_string()])
        .args(options)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    Node { child, lines: Box::new(lines.map_while(Result::ok)) }
}

#[test]
fn a_throw_away_cluster_leaves_nothing_behind() {
    let temporary = tempfile::tempdir().unwrap();
    let (mut cluster, port) = start_dev(temporary.path(), 1, &[]);
    cluster.wait_for("[KafkaRaftServer nodeId=1] Kafka Server started");
    cluster.wait_for(&format!("Bootstrap servers: 127.0.0.1:{port}"));
    assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 1);
    assert_eq!(cluster.terminate(), Some(0));
    assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 0);

    // With a directory of the user's it is there the next time.
    let kept = temporary.path().join("kept");
    let ids = [(), ()].map(|()| {
        let (mut cluster, _) = start_dev(temporary.path(), 1, &["--dir", kept.to_str().unwrap()]);
        cluster.wait_for("Bootstrap servers");
        assert_eq!(cluster.terminate(), Some(0));
        std::fs::read_to_string(kept.join("cluster.id")).unwrap()
    });
    assert_eq!(ids[0], ids[1]);
}

#[test]
fn a_throw_away_cluster_that_cannot_start_says_why() {
    let temporary = tempfile::tempdir().unwrap();
    let (mut cluster, _) = start_dev(temporary.path(), 1, &["--override", "num.partitions=0"]);
    assert_eq!(cluster.child.wait().unwrap().code(), Some(1));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let mut cluster = start_dev_at(port, temporary.path(), 1, &[]);
    cluster.wait_for("node 1 has ended");
    assert_eq!(cluster.child.wait().unwrap().code(), Some(1));
    assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 0);
}

#[test]
fn a_start_that_waits_for_a_quorum_says_so_and_ends_on_a_signal() {
    let place = Place::new();
    // Nobody listens on these ports.
    place.configure("controller.quorum.voters=1@127.0.0.1:9093,2@127.0.0.9:1,3@127.0.0.9:2\n");
    place.format();
    let mut node = place.spawn();
    node.wait_for("Waiting for the metadata quorum");
    assert_eq!(node.terminate(), Some(0));
}

#[test]
fn the_example_files_are_valid_as_they_are() {
    let mut files = 0;
    for dir in ["config", "config/cluster"] {
        let entries = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(dir)).unwrap();
        for file in entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()) {
            let checked = run(&["config", "check", file.to_str().unwrap()]).expect(0);
            assert!(!checked.stdout.contains("is not a known property"), "{}", checked.stdout);
            files += 1;
        }
    }
    assert!(files >= 5, "{files} files");
}

#[test]
fn health_is_told_by_words_and_by_the_exit_code() {
    let place = Place::new();
    let mut node = place.spawn();
    let address = node.address_of("PLAINTEXT");
    node.wait_for("Kafka Server started");
    place
        .run(&["health", "--address", &address])
        .expect(0)
        .says("broker 1 of cluster ")
        .says("is in service");
    place.run(&["health"]).expect(1).complains("no fixed port: say --address");
    // A node of another number answers there.
    place.configure("node.id=2\ncontroller.quorum.voters=2@127.0.0.1:9093\n");
    place.run(&["health", "--address", &address]).expect(1).complains("is node 1, not broker 2");
    assert_eq!(node.terminate(), Some(0));
    place.run(&["health", "--address", &address]).expect(1).complains("refuses connections");
}

#[test]
fn called_as_a_script_of_kafkas_it_asks_the_broker() {
    let place = Place::new();
    let mut node = place.spawn();
    let address = node.address_of("PLAINTEXT");
    node.wait_for("Kafka Server started");
    let (host, port) = address.split_once(':').unwrap();
    let server = format!("--bootstrap-server {address}");

    let versions = run_as(&format!("/opt/kafka/bin/kafka-broker-api-versions.sh {server}")).expect(0);
    versions
        .says(&format!("{address} (id: 1 rack: null isFenced: false) -> (\n\t"))
        .says("\tDescribeCluster(60): 0 to 2 [usable: 2],\n");
    run_as(&format!("kafka-cluster.sh cluster-id {server}")).expect(0).says("Cluster ID: ");
    assert_eq!(run_as(&format!("kafka-topics --list {server}")).expect(0).stdout, "\n");

    let create = format!("kafka-topics.sh --create {server} --topic made");
    let many = format!("{create} --partitions 2003 --replication-factor 1 --config retention.ms=1234");
    run_as(&many).expect(0).says("Created topic made.");
    run_as(&create).expect(1).complains("Error while executing topic command : TOPIC_ALREADY_EXISTS");
    run_as(&format!("{create} --if-not-exists")).expect(0);
    let refused = run_as(&format!("kafka-topics.sh --create {server} --topic big --replication-factor 9"));
    refused.expect(1).complains("INVALID_REPLICATION_FACTOR");

    assert_eq!(run_as(&format!("kafka-topics.sh --list {server}")).expect(0).stdout, "made\n");
    // More partitions than come in one answer.
    let told = run_as(&format!("kafka-topics.sh --describe {server} --topic ma.*")).expect(0).stdout;
    let lines: Vec<_> = told.lines().collect();
    assert!(lines[0].starts_with("Topic: made\tTopicId: ") && lines[0].contains("\tPartitionCount: 2003\t"));
    assert!(lines[0].contains("retention.ms=1234") && !lines[0].contains("cleanup.policy"), "{}", lines[0]);
    for partition in 0..2003 {
        let expected = format!(
            "\tTopic: made\tPartition: {partition}\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr: "
        );
        assert_eq!(lines[partition + 1], expected);
    }
    let absent = format!("kafka-topics.sh --describe {server} --topic absent");
    run_as(&absent).expect(1).complains("Topic 'absent' does not exist as expected");
    assert_eq!(run_as(&format!("{absent} --if-exists")).expect(0).stdout, "");

    run_as(&format!("nc -zv -w 5 {host} {port}")).expect(0).says(" open");
    run_as(&format!("kafka-topics.sh --delete {server} --topic made"))
        .expect(1)
        .complains("for health checks");
    assert_eq!(node.terminate(), Some(0));
    run_as(&format!("nc -z {host} {port}")).expect(1).complains("refused");
}
