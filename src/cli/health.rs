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
use crate::wire::messages::{DescribeClusterRequest, DescribeClusterResponse};

/// What DescribeCluster asks for: brokers or controllers.
const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;

/// What is to be asked, and where.
#[derive(Debug, PartialEq, Eq)]
struct Question {
    node: NodeId,
    address: Address,
    endpoint_type: i8,
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
    let (listeners, endpoint_type) = match node.roles.broker {
        true => (&node.listeners, BROKERS),
        false => (&node.controller_listeners, CONTROLLERS),
    };
    let address = match address {
        Some(HostPort { host, port }) => Address { host, port },
        None => {
            let plain = listeners.iter().find(|listener| listener.protocol == SecurityProtocol::Plaintext);
            local(plain.ok_or("no listener takes connections without TLS and SASL: say --address")?)?
        }
    };
    Ok(Question { node: node.node_id, address, endpoint_type })
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

async fn ask(question: &Question, limit: Duration) -> Result<DescribeClusterResponse, Failure> {
    let connection = Connection::open(&question.address, "floodmark-health", limit).await?;
    let request = DescribeClusterRequest::default().with_endpoint_type(question.endpoint_type);
    let answer = connection.call(&request, limit).await;
    Ok(answer.map_err(|error| format!("{}: {error}", question.address))?)
}

fn judge(question: &Question, answer: &DescribeClusterResponse) -> Result<String, Failure> {
    let Question { node: NodeId(node), address, endpoint_type } = question;
    if answer.error_code != 0 {
        let reason = answer.error_message.as_deref().unwrap_or("no reason given");
        return Err(format!("{address} answers with error {}: {reason}", answer.error_code).into());
    }
    let cluster = answer.cluster_id.as_str();
    if *endpoint_type == BROKERS {
        if !answer.brokers.iter().any(|broker| broker.broker_id.0 == *node) {
            return Err(format!("{address} answers, but broker {node} is not in service yet").into());
        }
        return Ok(format!("broker {node} of cluster {cluster} is in service at {address}"));
    }
    match answer.controller_id.0 {
        -1 => {
            Err(format!("{address} answers, but the quorum has no leader that controller {node} knows")
                .into())
        }
        leader => Ok(format!("controller {node} of cluster {cluster} at {address} follows {leader}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, Sources};
    use crate::wire::messages::describe_cluster_response::DescribeClusterBroker;

    fn asked(overrides: &[(&str, &str)]) -> Result<(String, i8), String> {
        let overrides =
            overrides.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let config = config::load(&Sources { overrides, ..Sources::default() }).unwrap();
        let question = question(&config, None).map_err(|failure| failure.to_string())?;
        Ok((question.address.to_string(), question.endpoint_type))
    }

    #[test]
    fn a_listener_on_every_interface_is_asked_over_loopback() {
        assert_eq!(asked(&[]), Ok(("127.0.0.1:9092".to_owned(), BROKERS)));
        assert_eq!(
            asked(&[("listeners", "PLAINTEXT://:19092")]),
            Ok(("127.0.0.1:19092".to_owned(), BROKERS))
        );
        assert_eq!(
            asked(&[("listeners", "PLAINTEXT://[::]:19092")]),
            Ok(("[::1]:19092".to_owned(), BROKERS))
        );
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
        assert_eq!(asked, Ok(("127.0.0.1:9093".to_owned(), CONTROLLERS)));
    }

    #[test]
    fn a_broker_is_healthy_once_it_is_unfenced_and_a_controller_once_it_knows_the_leader() {
        let question = |endpoint_type| Question {
            node: NodeId(2),
            address: Address { host: "localhost".to_owned(), port: 9092 },
            endpoint_type,
        };
        let broker = |id: i32| DescribeClusterBroker::default().with_broker_id(id.into());
        let answer =
            DescribeClusterResponse::default().with_brokers(vec![broker(1)]).with_controller_id((-1).into());
        assert!(judge(&question(BROKERS), &answer).unwrap_err().to_string().contains("not in service"));
        assert!(judge(&question(CONTROLLERS), &answer).unwrap_err().to_string().contains("no leader"));
        let answer = answer.with_brokers(vec![broker(1), broker(2)]).with_controller_id(1.into());
        assert!(judge(&question(BROKERS), &answer).unwrap().starts_with("broker 2 "));
        assert!(judge(&question(CONTROLLERS), &answer).unwrap().ends_with("follows 1"));
        let refused = answer.with_error_code(31);
        assert!(judge(&question(BROKERS), &refused).unwrap_err().to_string().contains("error 31"));
    }
}
