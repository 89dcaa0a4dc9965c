//! `floodmark dev`: a throw-away cluster on this machine, for trying things out and for tests of clients.
//!
//! Each node is a process of its own, of this very program: so one can be killed as in real life while the others go on, and
//! nothing that they share hides what a cluster does. Must not know how a node works. Invariant: the nodes end when this
//! process does, however it ends.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};

use super::Failure;
use super::args::DevArgs;
use super::directories::random_id;
use super::serve::Stop;
use crate::types::kafka_uuid;

/// How many of the nodes vote on metadata: one more would slow every change and survive no more failures.
const MAX_VOTERS: u16 = 3;
const MAX_REPLICAS: u16 = 3;
/// What a node prints when it serves.
const STARTED: &str = "Kafka Server started";
/// How long nodes may take to stop.
const STOP_LIMIT: Duration = Duration::from_secs(20);

pub fn run(args: &DevArgs) -> Result<(), Failure> {
    let place = Place::take(args.dir.clone())?;
    let mut cluster = Cluster::new(args, &place)?;
    let (events, inbox) = mpsc::channel();
    watch_signals(events.clone())?;
    let done = cluster.start(&events).and_then(|()| cluster.attend(&inbox));
    cluster.stop(&inbox);
    done
}

/// Ends this process when the process `parent`, which has started it, does.
pub fn end_with(parent: u32) -> Result<(), Failure> {
    set_parent_process_death_signal(Some(Signal::TERM))?;
    let is_parent = getppid().is_some_and(|pid| pid.as_raw_nonzero().get().unsigned_abs() == parent);
    if is_parent { Ok(()) } else { Err("whoever started this node has ended".into()) }
}

/// Where the nodes keep their data.
struct Place {
    path: PathBuf,
    is_temporary: bool,
}

impl Place {
    fn take(dir: Option<PathBuf>) -> Result<Place, Failure> {
        let is_temporary = dir.is_none();
        let temporary =
            || std::env::temp_dir().join(format!("floodmark-dev-{}", kafka_uuid::format(random_id())));
        let path = dir.unwrap_or_else(temporary);
        std::fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Place { path: std::path::absolute(path)?, is_temporary })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_temporary
            && let Err(error) = std::fs::remove_dir_all(&self.path)
        {
            eprintln!("{} is left behind: {error}", self.path.display());
        }
    }
}

/// What the nodes and the user let us know.
enum Event {
    Line(u16, String),
    Ended(u16),
    Stop,
}

struct Cluster {
    program: PathBuf,
    bootstrap: String,
    /// In the order of their ids, which begin at 1.
    files: Vec<PathBuf>,
    overrides: Vec<String>,
    members: Vec<Member>,
}

struct Member {
    node: u16,
    child: Child,
    has_ended: bool,
}

impl Cluster {
    /// Writes the configuration of each node and formats its directory.
    fn new(args: &DevArgs, place: &Place) -> Result<Cluster, Failure> {
        let ports = Ports::new(args.port, args.brokers)?;
        let program = std::env::current_exe()?;
        let cluster_id = cluster_id(&place.path)?;
        let overrides: Vec<String> =
            args.overrides.iter().map(|(key, value)| format!("--override={key}={value}")).collect();
        let mut files = Vec::new();
        for node in 1..=args.brokers {
            let file = place.path.join(format!("node-{node}.properties"));
            std::fs::write(&file, properties(node, args.brokers, &ports, &place.path))?;
            let mut format = Command::new(&program);
            format.args(["storage", "format", "--ignore-formatted", "--cluster-id", &cluster_id, "--config"]);
            let done = format.arg(&file).args(&overrides).output()?;
            if !done.status.success() {
                return Err(String::from_utf8_lossy(&done.stderr).trim_end().into());
            }
            files.push(file);
        }
        let brokers: Vec<String> =
            (1..=args.brokers).map(|node| format!("127.0.0.1:{}", ports.broker(node))).collect();
        Ok(Cluster { program, bootstrap: brokers.join(","), files, overrides, members: Vec::new() })
    }

    fn start(&mut self, events: &Sender<Event>) -> Result<(), Failure> {
        for (node, file) in (1..).zip(&self.files) {
            let mut child = Command::new(&self.program)
                .arg(format!("--parent={}", std::process::id()))
                .arg("--config")
                .arg(file)
                .args(&self.overrides)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                // Ctrl-C is for us; they are told once.
                .process_group(0)
                .spawn()?;
            let (out, err) = (child.stdout.take(), child.stderr.take());
            self.members.push(Member { node, child, has_ended: false });
            forward(node, err, events.clone(), false)?;
            forward(node, out, events.clone(), true)?;
        }
        Ok(())
    }

    /// Passes on what the nodes say, until the user ends it or no node is left.
    fn attend(&mut self, inbox: &Receiver<Event>) -> Result<(), Failure> {
        let mut starting: BTreeSet<u16> = self.members.iter().map(|member| member.node).collect();
        loop {
            match inbox.recv()? {
                Event::Stop => return Ok(()),
                Event::Line(node, line) => {
                    println!("node {node} | {line}");
                    if line.contains(STARTED) && starting.remove(&node) && starting.is_empty() {
                        println!("Bootstrap servers: {}", self.bootstrap);
                        println!("Ctrl-C ends the cluster.");
                    }
                }
                Event::Ended(node) => {
                    let status = self.note_end(node)?;
                    println!("node {node} has ended ({status})");
                    if starting.contains(&node) {
                        return Err(format!("node {node} did not start").into());
                    }
                    if self.members.iter().all(|member| member.has_ended) {
                        return Err("no node is left".into());
                    }
                    println!("It starts again with: {}", self.command_of(node));
                }
            }
        }
    }

    fn note_end(&mut self, node: u16) -> Result<ExitStatus, Failure> {
        let member = self.members.iter_mut().find(|member| member.node == node).ok_or("an unknown node")?;
        member.has_ended = true;
        Ok(member.child.wait()?)
    }

    fn command_of(&self, node: u16) -> String {
        let file = &self.files[usize::from(node) - 1];
        let mut command = format!("{} --config {}", self.program.display(), file.display());
        for setting in &self.overrides {
            let _ = write!(command, " {setting}");
        }
        command
    }

    /// Has all nodes stop, and ends those that take too long or when the user does not want to wait.
    fn stop(&mut self, inbox: &Receiver<Event>) {
        self.signal(Signal::TERM);
        let deadline = Instant::now() + STOP_LIMIT;
        while self.members.iter().any(|member| !member.has_ended) {
            match inbox.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Event::Line(node, line)) => println!("node {node} | {line}"),
                Ok(Event::Ended(node)) => {
                    let _ = self.note_end(node);
                }
                Ok(Event::Stop) | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    self.signal(Signal::KILL);
                    for member in &mut self.members {
                        let _ = member.child.wait();
                        member.has_ended = true;
                    }
                }
            }
        }
    }

    fn signal(&self, signal: Signal) {
        for member in self.members.iter().filter(|member| !member.has_ended) {
            // One that has just ended does not mind.
            let _ = kill_process(Pid::from_child(&member.child), signal);
        }
    }
}

/// The ports of a cluster: those of the brokers, then those of the controllers.
struct Ports {
    first: u16,
    brokers: u16,
}

impl Ports {
    fn new(first: u16, brokers: u16) -> Result<Ports, Failure> {
        match first.checked_add(2 * brokers) {
            Some(_) => Ok(Ports { first, brokers }),
            None => Err(format!("--port {first} leaves no room for {} ports", 2 * brokers).into()),
        }
    }

    fn broker(&self, node: u16) -> u16 {
        self.first + node - 1
    }

    fn controller(&self, node: u16) -> u16 {
        self.first + self.brokers + node - 1
    }
}

/// That of a cluster which was here before, else a new one.
fn cluster_id(dir: &Path) -> Result<String, Failure> {
    let file = dir.join("cluster.id");
    match std::fs::read_to_string(&file) {
        Ok(id) => Ok(id.trim().to_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let id = kafka_uuid::format(random_id());
            std::fs::write(&file, format!("{id}\n"))?;
            Ok(id)
        }
        Err(error) => Err(format!("{}: {error}", file.display()).into()),
    }
}

fn properties(node: u16, brokers: u16, ports: &Ports, dir: &Path) -> String {
    let voters = if brokers < MAX_VOTERS { 1 } else { MAX_VOTERS };
    let replicas = brokers.min(MAX_REPLICAS);
    let named: Vec<String> =
        (1..=voters).map(|voter| format!("{voter}@127.0.0.1:{}", ports.controller(voter))).collect();
    let (roles, controller) = if node <= voters {
        ("broker,controller", format!(",CONTROLLER://127.0.0.1:{}", ports.controller(node)))
    } else {
        ("broker", String::new())
    };
    // A backslash would begin an escape.
    let data = dir.join(format!("node-{node}")).display().to_string().replace('\\', "\\\\");
    format!(
        "process.roles={roles}\nnode.id={node}\nlisteners=PLAINTEXT://127.0.0.1:{port}{controller}\n\
         controller.listener.names=CONTROLLER\ncontroller.quorum.voters={voters}\nlog.dirs={data}\n\
         default.replication.factor={replicas}\nmin.insync.replicas={min_isr}\n\
         offsets.topic.replication.factor={replicas}\ntransaction.state.log.replication.factor={replicas}\n\
         transaction.state.log.min.isr={min_isr}\nshare.coordinator.state.topic.replication.factor={replicas}\n\
         share.coordinator.state.topic.min.isr={min_isr}\n",
        port = ports.broker(node),
        voters = named.join(","),
        min_isr = if replicas < 3 { 1 } else { 2 },
    )
}

/// Passes on the lines of a node, and that it has ended when `is_last` of its outputs.
fn forward(
    node: u16,
    output: Option<impl Read + Send + 'static>,
    events: Sender<Event>,
    is_last: bool,
) -> Result<(), Failure> {
    let Some(output) = output else { return Ok(()) };
    let body = move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let _ = events.send(Event::Line(node, line));
        }
        if is_last {
            let _ = events.send(Event::Ended(node));
        }
    };
    std::thread::Builder::new().name(format!("node-{node}")).spawn(body)?;
    Ok(())
}

fn watch_signals(events: Sender<Event>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut stop = runtime.block_on(async { Stop::new() })?;
    let body = move || {
        runtime.block_on(async {
            loop {
                stop.requested().await;
                let _ = events.send(Event::Stop);
            }
        });
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(body)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_nodes_vote_and_the_others_follow() {
        let ports = Ports::new(9092, 4).unwrap();
        let text = properties(4, 4, &ports, Path::new("/tmp/c"));
        assert!(text.starts_with(
            "process.roles=broker\nnode.id=4\nlisteners=PLAINTEXT://127.0.0.1:9095\n\
             controller.listener.names=CONTROLLER\n\
             controller.quorum.voters=1@127.0.0.1:9096,2@127.0.0.1:9097,3@127.0.0.1:9098\nlog.dirs=/tmp/c/node-4\n\
             default.replication.factor=3\nmin.insync.replicas=2\n"
        ));
        assert!(Ports::new(65_530, 3).is_err());
    }

    #[test]
    fn every_size_is_a_valid_configuration() {
        let dir = tempfile::tempdir().unwrap();
        for brokers in 1..=5 {
            let ports = Ports::new(9092, brokers).unwrap();
            for node in 1..=brokers {
                let file = dir.path().join("node.properties");
                std::fs::write(&file, properties(node, brokers, &ports, dir.path())).unwrap();
                let sources = crate::config::Sources { file: Some(file), ..Default::default() };
                let config = crate::config::load(&sources).unwrap();
                assert_eq!(config.node.node_id.0, i32::from(node));
                assert!(config.warnings.iter().all(|warning| !warning.to_string().contains("unknown")));
            }
        }
    }
}
