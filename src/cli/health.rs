//! `floodmark health`: asks the node that this configuration describes whether it serves. For health checks of containers
//! and service managers.
//!
//! Looks at no files of the node, so that it can run beside it. Invariant: healthy means that a client could work with the
//! node now: a broker is unfenced, a controller knows the leader of the quorum.

use std::time::Duration;

use super::Failure;
use crate::config::{Config, HostPort, Listener, SecurityProtocol};
use crate::peer::{Address, Connection};
use crate::types::NodeId;
use crate::wire::messages::{ReadinessRequest, ReadinessResponse};

/// What is to be asked, and where.
#[derive(Debug, PartialEq, Eq)]
struct Question {
    node: NodeId,
    address: Address,
    is_broker: bool,
}

/// Prints a line and succeeds if the node is healthy; fails with the reason if it is not.
pub fn run(config: &Config, address: Option<HostPort>, limit: Duration) -> Result<(), Failure> {
    let question = question(config, address)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answer = runtime.block_on(ask(&question, limit))?;
    println!("{}", judge(&question, &answer)?);
    Ok(())
}

/// A broker is asked on a listener for clients, and only a node that is none on one for controllers.
fn question(config: &Config, address: Option<HostPort>) -> Result<Question, Failure> {
    let node = &config.node;
    let is_broker = node.roles.broker;
    let listeners = if is_broker { &node.listeners } else { &node.controller_listeners };
    let address = match address {
        Some(HostPort { host, port }) => Address { host, port },
        None => {
            let plain = listeners.iter().find(|listener| listener.protocol == SecurityProtocol::Plaintext);
            local(plain.ok_or("no listener takes connections without TLS and SASL: say --address")?)?
        }
    };
    Ok(Question { node: node.node_id, address, is_broker })
}

/// Where a listener is reached from the machine that it is on.
fn local(listener: &Listener) -> Result<Address, Failure> {
    if listener.port == 0 {
        return Err(format!("{listener} has no fixed port: say --address").into());
    }
    let host = match listener.host.as_deref() {
        None | Some("0.0.0.0") => "127.0.0.1",
        Some("::") => "::1",
        Some(host) => host,
    };
    Ok(Address { host: host.to_owned(), port: listener.port })
}

async fn ask(question: &Question, limit: Duration) -> Result<ReadinessResponse, Failure> {
    let connection = Connection::open_unasked(&question.address, "floodmark-health", limit).await?;
    let answer = connection.call(&ReadinessRequest::default(), limit).await;
    Ok(answer.map_err(|error| format!("{}: {error}", question.address))?)
}

fn judge(question: &Question, answer: &ReadinessResponse) -> Result<String, Failure> {
    let Question { node: NodeId(node), address, is_broker } = question;
    let kind = if *is_broker { "broker" } else { "controller" };
    if answer.node_id != *node {
        return Err(format!("at {address} is node {}, not {kind} {node}", answer.node_id).into());
    }
    if let Some(reason) = &answer.not_ready {
        return Err(format!("{kind} {node} at {address} is not in service: {}", reason.as_str()).into());
    }
    let (cluster, leader) = (answer.cluster_id.as_str(), answer.leader);
    Ok(match is_broker {
        true => format!("broker {node} of cluster {cluster} is in service at {address}"),
        false => format!("controller {node} of cluster {cluster} at {address} follows {leader}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, Sources};
    use crate::wire::messages::StrBytes;

    fn asked(overrides: &[(&str, &str)]) -> Result<(String, bool), String> {
        let overrides =
            overrides.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let config = config::load(&Sources { overrides, ..Sources::default() }).unwrap();
        let question = question(&config, None).map_err(|failure| failure.to_string())?;
        Ok((question.address.to_string(), question.is_broker))
    }

    #[test]
    fn a_listener_on_every_interface_is_asked_over_loopback() {
        assert_eq!(asked(&[]), Ok(("127.0.0.1:9092".to_owned(), true)));
        assert_eq!(asked(&[("listeners", "PLAINTEXT://:19092")]), Ok(("127.0.0.1:19092".to_owned(), true)));
        assert_eq!(asked(&[("listeners", "PLAINTEXT://[::]:19092")]), Ok(("[::1]:19092".to_owned(), true)));
        assert!(asked(&[("listeners", "PLAINTEXT://127.0.0.1:0")]).unwrap_err().contains("--address"));
    }

    #[test]
    fn a_controller_alone_is_asked_on_its_own_listener() {
        let asked = asked(&[
            ("process.roles", "controller"),
            ("node.id", "7"),
            ("listeners", "CONTROLLER://0.0.0.0:9093"),
            ("controller.listener.names", "CONTROLLER"),
            ("controller.quorum.voters", "7@localhost:9093"),
        ]);
        assert_eq!(asked, Ok(("127.0.0.1:9093".to_owned(), false)));
    }

    #[test]
    fn what_is_not_in_service_says_why() {
        let question = |is_broker| Question {
            node: NodeId(2),
            address: Address { host: "localhost".to_owned(), port: 9092 },
            is_broker,
        };
        let ready = ReadinessResponse { node_id: 2, leader: 1, ..Default::default() };
        let waits =
            |why| ReadinessResponse { not_ready: Some(StrBytes::from_static_str(why)), ..ready.clone() };
        let failure = |is_broker, answer| judge(&question(is_broker), &answer).unwrap_err().to_string();
        assert!(
            failure(true, waits("3 logs left"))
                .ends_with("broker 2 at localhost:9092 is not in service: 3 logs left")
        );
        assert!(failure(false, waits("no leader")).contains("controller 2 "));
        let other = ReadinessResponse { node_id: 1, ..ready.clone() };
        assert!(failure(true, other).ends_with("is node 1, not broker 2"));
        assert!(judge(&question(true), &ready).unwrap().starts_with("broker 2 "));
        assert!(judge(&question(false), &ready).unwrap().ends_with("follows 1"));
    }
}
