//! `kafka-topics`: lists topics, describes them, and creates one, in the words of Kafka's script.

use std::fmt::Write;

use regex::Regex;

use super::{Failure, PATIENCE, Servers, refused};
use crate::peer::Connection;
use crate::types::{ErrorCode, kafka_uuid};
use crate::wire::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use crate::wire::messages::describe_configs_request::DescribeConfigsResource;
use crate::wire::messages::describe_topic_partitions_request::{Cursor, TopicRequest};
use crate::wire::messages::describe_topic_partitions_response::{
    DescribeTopicPartitionsResponsePartition as Partition, DescribeTopicPartitionsResponseTopic as Topic,
};
use crate::wire::messages::{
    BrokerId, CreateTopicsRequest, DescribeConfigsRequest, DescribeTopicPartitionsRequest, MetadataRequest,
    StrBytes, TopicName,
};

/// A topic, among the resources that have settings.
const TOPIC: i8 = 2;
/// Where a setting comes from that nobody has set.
const DEFAULT_CONFIG: i8 = 5;
/// How many partitions one answer may describe: Kafka's own limit.
const PARTITIONS_AT_ONCE: i32 = 2000;

#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("action").required(true)))]
pub struct Args {
    #[command(flatten)]
    servers: Servers,
    /// List the names of topics
    #[arg(long, group = "action")]
    list: bool,
    /// Tell of topics who has their partitions
    #[arg(long, group = "action")]
    describe: bool,
    /// Create a topic
    #[arg(long, group = "action", requires = "topic")]
    create: bool,
    /// The topic; what is listed or described may be a regular expression
    #[arg(long)]
    topic: Option<String>,
    /// Leave out the topics that the cluster keeps for itself
    #[arg(long, conflicts_with = "create")]
    exclude_internal: bool,
    /// Describe nothing if there is no such topic
    #[arg(long, requires = "describe")]
    if_exists: bool,
    /// Create nothing if there is such a topic
    #[arg(long, requires = "create")]
    if_not_exists: bool,
    /// How many partitions the new topic has; by default what the cluster says
    #[arg(long, requires = "create", value_parser = clap::value_parser!(i32).range(1..))]
    partitions: Option<i32>,
    /// How many brokers have each of them; by default what the cluster says
    #[arg(long, requires = "create", value_parser = clap::value_parser!(i16).range(1..))]
    replication_factor: Option<i16>,
    /// A setting of the new topic, NAME=VALUE; may be given several times
    #[arg(long, requires = "create", value_name = "NAME=VALUE", value_parser = crate::cli::args::key_value)]
    config: Vec<(String, String)>,
}

/// What is to be printed.
pub async fn run(args: &Args) -> Result<String, Failure> {
    let connection = args.servers.connect().await?;
    let done = match &args.topic {
        Some(topic) if args.create => create(&connection, args, topic).await,
        _ if args.describe => describe(&connection, args).await,
        _ => names(&connection, args).await.map(|names| names.join("\n") + "\n"),
    };
    done.map_err(|failure| format!("Error while executing topic command : {failure}").into())
}

/// The topics that are asked for, in the order of their names.
async fn names(connection: &Connection, args: &Args) -> Result<Vec<String>, Failure> {
    let wanted = args.topic.as_deref().map(pattern).transpose()?;
    let answer = connection.call(&MetadataRequest::default().with_topics(None), PATIENCE).await?;
    refused(answer.error_code, None)?;
    let topics = answer.topics.iter().filter(|topic| !(args.exclude_internal && topic.is_internal));
    let mut names: Vec<String> = topics.filter_map(|topic| Some(topic.name.as_ref()?.to_string())).collect();
    names.retain(|name| wanted.as_ref().is_none_or(|wanted| wanted.is_match(name)));
    names.sort_unstable();
    Ok(names)
}

/// What a list of names or expressions, separated by commas, must match as a whole.
fn pattern(topics: &str) -> Result<Regex, Failure> {
    Ok(Regex::new(&format!("^(?:{})$", topics.trim().replace(',', "|")))?)
}

async fn create(connection: &Connection, args: &Args, name: &str) -> Result<String, Failure> {
    let configs = args.config.iter().map(|(name, value)| {
        CreatableTopicConfig::default().with_name(text(name)).with_value(Some(text(value)))
    });
    let topic = CreatableTopic::default()
        .with_name(TopicName(text(name)))
        .with_num_partitions(args.partitions.unwrap_or(-1))
        .with_replication_factor(args.replication_factor.unwrap_or(-1))
        .with_configs(configs.collect());
    let limit_ms = i32::try_from(PATIENCE.as_millis())?;
    let request = CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(limit_ms);
    let answer = connection.call(&request, PATIENCE).await?;
    let made = answer.topics.first().ok_or("the broker does not tell what has become of the topic")?;
    if args.if_not_exists && made.error_code == ErrorCode::TopicAlreadyExists as i16 {
        return Ok(String::new());
    }
    refused(made.error_code, made.error_message.as_deref())?;
    Ok(format!("Created topic {name}.\n"))
}

async fn describe(connection: &Connection, args: &Args) -> Result<String, Failure> {
    let names = names(connection, args).await?;
    match &args.topic {
        Some(topic) if names.is_empty() && !args.if_exists => {
            return Err(format!("Topic '{topic}' does not exist as expected").into());
        }
        _ => {}
    }
    let mut told = String::new();
    for topic in topics(connection, &names).await? {
        let name = topic.name.as_ref().map_or("", |name| name.as_str());
        // It has gone since it was listed.
        if topic.error_code == ErrorCode::UnknownTopicOrPartition as i16 {
            continue;
        }
        refused(topic.error_code, None)?;
        let settings = settings(connection, name).await?;
        write_topic(&mut told, name, &topic, &settings)?;
    }
    Ok(told)
}

/// The topics with all their partitions, however many answers that takes.
async fn topics(connection: &Connection, names: &[String]) -> Result<Vec<Topic>, Failure> {
    let mut told: Vec<Topic> = Vec::new();
    if names.is_empty() {
        return Ok(told);
    }
    let asked = names.iter().map(|name| TopicRequest::default().with_name(TopicName(text(name)))).collect();
    let mut request = DescribeTopicPartitionsRequest::default()
        .with_topics(asked)
        .with_response_partition_limit(PARTITIONS_AT_ONCE);
    loop {
        let answer = connection.call(&request, PATIENCE).await?;
        for topic in answer.topics {
            match told.last_mut() {
                Some(last) if last.name == topic.name => last.partitions.extend(topic.partitions),
                _ => told.push(topic),
            }
        }
        let Some(next) = answer.next_cursor else { return Ok(told) };
        let next =
            Cursor::default().with_topic_name(next.topic_name).with_partition_index(next.partition_index);
        if request.cursor.as_ref() == Some(&next) {
            return Err("the broker does not get any further".into());
        }
        request.cursor = Some(next);
    }
}

/// What is set for a topic, by whomever.
async fn settings(connection: &Connection, name: &str) -> Result<String, Failure> {
    let asked = DescribeConfigsResource::default().with_resource_type(TOPIC).with_resource_name(text(name));
    let request = DescribeConfigsRequest::default().with_resources(vec![asked.with_configuration_keys(None)]);
    let answer = connection.call(&request, PATIENCE).await?;
    let mut set = Vec::new();
    for result in &answer.results {
        refused(result.error_code, result.error_message.as_deref())?;
        let entries = result.configs.iter().filter(|entry| entry.config_source != DEFAULT_CONFIG);
        set.extend(
            entries
                .map(|entry| format!("{}={}", entry.name.as_str(), entry.value.as_deref().unwrap_or("null"))),
        );
    }
    Ok(set.join(","))
}

fn write_topic(told: &mut String, name: &str, topic: &Topic, settings: &str) -> std::fmt::Result {
    let copies = topic.partitions.first().map_or(0, |partition| partition.replica_nodes.len());
    writeln!(
        told,
        "Topic: {name}\tTopicId: {}\tPartitionCount: {}\tReplicationFactor: {copies}\tConfigs: {settings}",
        kafka_uuid::format(topic.topic_id),
        topic.partitions.len()
    )?;
    topic.partitions.iter().try_for_each(|partition| write_partition(told, name, partition))
}

fn write_partition(told: &mut String, name: &str, partition: &Partition) -> std::fmt::Result {
    let leader = match partition.leader_id {
        BrokerId(-1) => "none".to_owned(),
        BrokerId(id) => id.to_string(),
    };
    let among = |eligible: &Option<Vec<BrokerId>>| eligible.as_deref().map_or("N/A".to_owned(), ids);
    writeln!(
        told,
        "\tTopic: {name}\tPartition: {}\tLeader: {leader}\tReplicas: {}\tIsr: {}\tElr: {}\tLastKnownElr: {}",
        partition.partition_index,
        ids(&partition.replica_nodes),
        ids(&partition.isr_nodes),
        among(&partition.eligible_leader_replicas),
        among(&partition.last_known_elr)
    )
}

fn ids(nodes: &[BrokerId]) -> String {
    nodes.iter().map(|node| node.0.to_string()).collect::<Vec<_>>().join(",")
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_matched_as_a_whole() {
        let matches = |topics: &str, name: &str| pattern(topics).unwrap().is_match(name);
        assert!(
            matches("orders", "orders") && !matches("orders", "orders-2") && !matches("orders", "my-orders")
        );
        assert!(matches("orders,payments", "payments"));
        assert!(matches("or.*", "orders") && !matches("a|b", "ab"));
        assert!(pattern("(").is_err());
    }

    #[test]
    fn a_partition_without_a_leader_has_none() {
        let partition = Partition::default()
            .with_leader_id((-1).into())
            .with_replica_nodes(vec![1.into(), 2.into()])
            .with_isr_nodes(vec![2.into()])
            .with_eligible_leader_replicas(Some(Vec::new()))
            .with_last_known_elr(None);
        let mut told = String::new();
        write_partition(&mut told, "t", &partition).unwrap();
        assert_eq!(
            told,
            "\tTopic: t\tPartition: 0\tLeader: none\tReplicas: 1,2\tIsr: 2\tElr: \tLastKnownElr: N/A\n"
        );
    }
}
