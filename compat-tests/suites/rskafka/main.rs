//! The common script (lib/script.py) through rskafka.
use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use chrono::{DateTime, Utc};
use rskafka::client::error::{Error, ProtocolError};
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::Record;

type Outcome = Result<(), String>;

async fn report(name: &str, work: impl Future<Output = Outcome>) {
    match tokio::time::timeout(Duration::from_secs(60), work).await {
        Ok(Ok(())) => println!("passed {name}"),
        Ok(Err(why)) => println!("failed {name} -- {}", why.replace('\n', " ")),
        Err(_) => println!("failed {name} -- not within 60 s"),
    }
}

fn same<T: PartialEq + std::fmt::Debug>(got: T, wanted: T, what: &str) -> Outcome {
    if got == wanted { Ok(()) } else { Err(format!("{what}: {got:?} instead of {wanted:?}")) }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

struct Script {
    client: Client,
    copies: i16,
    count: u32,
}

impl Script {
    fn unique(&mut self) -> String {
        self.count += 1;
        format!("rskafka-{}-{}-{}", std::process::id(), Utc::now().timestamp_micros(), self.count)
    }

    async fn create(&self, name: &str, partitions: i32) -> Result<(), Error> {
        self.client.controller_client()?.create_topic(name, partitions, self.copies, 10_000).await
    }

    async fn topic(&mut self, partitions: i32) -> Result<String, String> {
        let name = self.unique();
        self.create(&name, partitions).await.map_err(text)?;
        Ok(name)
    }

    async fn partition(&self, name: &str, index: i32) -> Result<PartitionClient, String> {
        self.client.partition_client(name, index, UnknownTopicHandling::Retry).await.map_err(text)
    }
}

fn records(prefix: &str, count: usize, at: DateTime<Utc>) -> Vec<Record> {
    (0..count)
        .map(|n| Record {
            key: Some(format!("{prefix}k{n}").into_bytes()),
            value: Some(format!("{prefix}v{n}").repeat(10).into_bytes()),
            headers: BTreeMap::from([("h".to_owned(), n.to_string().into_bytes())]),
            timestamp: DateTime::from_timestamp_millis(at.timestamp_millis()).unwrap_or(at),
        })
        .collect()
}

/// Reads until there are so many records, or nothing more comes.
async fn read(partition: &PartitionClient, mut offset: i64, count: usize) -> Result<Vec<Record>, String> {
    let mut got = Vec::new();
    while got.len() < count {
        let (some, _) = partition.fetch_records(offset, 1..1_000_000, 1_000).await.map_err(text)?;
        let Some(last) = some.last() else { break };
        offset = last.offset + 1;
        got.extend(some.into_iter().map(|one| one.record));
    }
    Ok(got)
}

fn refused<T>(wanted: ProtocolError, result: Result<T, Error>) -> Outcome {
    match result {
        Err(Error::ServerError { protocol_error, .. }) if protocol_error == wanted => Ok(()),
        Err(other) => Err(format!("{wanted:?} was due, and came {other}")),
        Ok(_) => Err(format!("{wanted:?} was due, and came nothing")),
    }
}

async fn admin(script: &mut Script) {
    let name = script.unique();
    report("create", async { script.create(&name, 3).await.map_err(text) }).await;
    report("describe", async {
        let topics = script.client.list_topics().await.map_err(text)?;
        let found = topics.into_iter().find(|topic| topic.name == name).map(|topic| topic.partitions.len());
        same(found, Some(3), "partitions")
    })
    .await;
    println!("n/a configure -- rskafka has no settings of topics");
    println!("n/a grow -- rskafka cannot add partitions");
    report("delete", async {
        script.client.controller_client().map_err(text)?.delete_topic(&name, 10_000).await.map_err(text)?;
        for _ in 0..100 {
            if script.client.list_topics().await.map_err(text)?.iter().all(|topic| topic.name != name) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Err("it is still there".to_owned())
    })
    .await;
}

async fn produce(script: &mut Script) {
    for (word, codec) in [
        ("none", Compression::NoCompression),
        ("gzip", Compression::Gzip),
        ("snappy", Compression::Snappy),
        ("lz4", Compression::Lz4),
        ("zstd", Compression::Zstd),
    ] {
        report(word, async {
            let name = script.topic(1).await?;
            let partition = script.partition(&name, 0).await?;
            let sent = records("", 100, Utc::now());
            let offsets = partition.produce(sent.clone(), codec).await.map_err(text)?;
            same(offsets, (0..100).collect(), "offsets")?;
            same(read(&partition, 0, 100).await?, sent, "what was read")
        })
        .await;
    }
}

async fn consume(script: &mut Script) -> Outcome {
    let name = script.topic(1).await?;
    let partition = script.partition(&name, 0).await?;
    let mut sent = records("", 50, Utc::now());
    partition.produce(sent.clone(), Compression::NoCompression).await.map_err(text)?;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let moment = Utc::now();
    let more = records("later-", 50, moment + Duration::from_millis(5));
    partition.produce(more.clone(), Compression::NoCompression).await.map_err(text)?;
    sent.extend(more);
    report("from an offset", async { same(read(&partition, 30, 70).await?, sent[30..].to_vec(), "what was read") }).await;
    report("from a time", async {
        same(partition.get_offset(OffsetAt::Timestamp(moment)).await.map_err(text)?, 50, "the offset of that time")
    })
    .await;
    report("to the end", async { same(read(&partition, 90, 11).await?, sent[90..].to_vec(), "what was read") }).await;
    Ok(())
}

async fn errors(script: &mut Script) -> Outcome {
    let name = script.topic(1).await?;
    let partition = script.partition(&name, 0).await?;
    report("topic exists", async { refused(ProtocolError::TopicAlreadyExists, script.create(&name, 1).await) }).await;
    report("invalid topic", async { refused(ProtocolError::InvalidTopicException, script.create("no/such", 1).await) }).await;
    report("unknown topic", async {
        let unknown = script.client.partition_client(format!("not-{name}"), 0, UnknownTopicHandling::Error).await;
        refused(ProtocolError::UnknownTopicOrPartition, unknown)
    })
    .await;
    report("out of range", async { refused(ProtocolError::OffsetOutOfRange, partition.fetch_records(99, 1..1000, 1000).await) }).await;
    report("too large", async {
        let big = vec![Record { key: None, value: Some(vec![b'x'; 2 << 20]), headers: BTreeMap::new(), timestamp: Utc::now() }];
        refused(ProtocolError::MessageTooLarge, partition.produce(big, Compression::NoCompression).await)
    })
    .await;
    Ok(())
}

#[tokio::main]
async fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().collect();
    let brokers: Vec<String> = arguments[1].split(',').map(str::to_owned).collect();
    let copies = brokers.len().min(3) as i16;
    let client = ClientBuilder::new(brokers).build().await.map_err(text)?;
    let mut script = Script { client, copies, count: 0 };
    match arguments[2].as_str() {
        "admin" => admin(&mut script).await,
        "produce" => produce(&mut script).await,
        "consume" => consume(&mut script).await?,
        _ => errors(&mut script).await?,
    }
    Ok(())
}
