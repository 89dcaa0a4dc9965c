//! `kafka-broker-api-versions`: which versions of which APIs each broker of the cluster serves, in the words of Kafka's script.

use std::fmt::Write;

use super::{ATTEMPT, CLIENT_ID, Failure, describe_cluster};
use crate::peer::{Address, Connection};
use crate::wire::api::ApiRow;

/// A paragraph for each broker in service, which is asked where it wants to be reached by clients.
pub async fn of_all(connection: &Connection) -> Result<String, Failure> {
    let cluster = describe_cluster(connection).await?;
    if cluster.brokers.is_empty() {
        return Err("no broker is in service".into());
    }
    let mut text = String::new();
    for broker in &cluster.brokers {
        let rack = broker.rack.as_deref().unwrap_or("null");
        write!(
            text,
            "{}:{} (id: {} rack: {rack} isFenced: {}) -> ",
            broker.host.as_str(),
            broker.port,
            broker.broker_id.0,
            broker.is_fenced
        )?;
        match ask(&broker.host, broker.port).await {
            Ok(served) => writeln!(text, "({}\n)", served.join(","))?,
            Err(failure) => writeln!(text, "ERROR: {failure}")?,
        }
    }
    Ok(text)
}

async fn ask(host: &str, port: i32) -> Result<Vec<String>, Failure> {
    let address = Address { host: host.to_owned(), port: u16::try_from(port)? };
    let connection = Connection::open(&address, CLIENT_ID, ATTEMPT).await?;
    Ok(connection
        .served()
        .iter()
        .map(|(key, (min, max))| format!("\n\t{}", line(*key, *min, *max)))
        .collect())
}

/// What is served of one API, and which version of it this program would use.
fn line(key: i16, min: i16, max: i16) -> String {
    let versions = if min == max { min.to_string() } else { format!("{min} to {max}") };
    let Some(row) = ApiRow::of(key) else { return format!("UNKNOWN({key}): {versions}") };
    let usable = match row.max.min(max) {
        _ if row.max < min => "unusable: node too new".to_owned(),
        _ if max < row.min => "unusable: node too old".to_owned(),
        usable => format!("usable: {usable}"),
    };
    format!("{}({key}): {versions} [{usable}]", row.name)
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn versions_are_told_as_kafka_tells_them() {
        assert_eq!(line(60, 0, 2), "DescribeCluster(60): 0 to 2 [usable: 2]");
        assert_eq!(line(60, 0, 1), "DescribeCluster(60): 0 to 1 [usable: 1]");
        assert_eq!(line(75, 0, 0), "DescribeTopicPartitions(75): 0 [usable: 0]");
        assert_eq!(line(60, 90, 91), "DescribeCluster(60): 90 to 91 [unusable: node too new]");
        assert_eq!(line(29_000, 0, 3), "UNKNOWN(29000): 0 to 3");
    }
}
