//! Runs the scripts in `tests/transaction/*.txt`: commands to one coordinator, then `----`, then what they must lead to.
//! `UPDATE_EXPECT=1 cargo test coordinator::transaction` writes what the code does into the scripts.
//!
//! A command is a word and `key=value` arguments; `now=` on any command sets the clock first, in milliseconds. A producer is
//! written `id:epoch`. Producer ids count up from 1 and are given when the coordinator wants one.

use std::fmt::Write as _;

use super::*;
use crate::coordinator::{Encode as _, Now};
use crate::metadata::tests::replay::check_scripts;
use crate::metadata::{Image, features};
use crate::types::ProducerEpoch;
use crate::wire::messages::transactions::TransactionLogValue;

/// When the scripts begin.
const START_MS: i64 = 1_000_000;

pub(super) const SETTINGS: Settings =
    Settings { abort_interval_ms: 10_000, expiration_ms: 600_000, expire_interval_ms: 60_000 };

struct Script {
    now: i64,
    image: Image,
    machine: Transactions,
    /// All records so far, as bytes.
    log: Vec<(Bytes, Option<Bytes>)>,
    last_id: i64,
}

fn arg<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let mut pairs = line.split_whitespace().filter_map(|word| word.split_once('='));
    pairs.find(|(name, _)| *name == key).map(|(_, value)| value)
}

fn int(line: &str, key: &str, default: i64) -> i64 {
    arg(line, key).map_or(default, |text| text.parse().expect("a number"))
}

fn producer(text: &str) -> Producer {
    let (id, epoch) = text.split_once(':').expect("id:epoch");
    let epoch = ProducerEpoch(epoch.parse().expect("an epoch"));
    Producer { id: ProducerId(id.parse().expect("an id")), epoch }
}

fn partitions(line: &str) -> Vec<TopicPartition> {
    let names = arg(line, "of").into_iter().flat_map(|list| list.split(','));
    let partition = |name: &str| {
        let (topic, index) = name.rsplit_once('-').expect("topic-partition");
        TopicPartition::new(topic, index.parse().expect("an index"))
    };
    names.map(partition).collect()
}

pub(super) fn image_at(version: i16) -> Image {
    let mut image = Image::default();
    image.apply(&features::level_record(TRANSACTION_VERSION, version));
    image
}

impl Script {
    fn new() -> Script {
        let mut script = Script {
            now: 0,
            image: image_at(2),
            machine: Transactions::new(SETTINGS),
            log: Vec::new(),
            last_id: 0,
        };
        script.restart(&mut Out::default());
        script
    }

    fn context(now: i64, image: &Image) -> Context<'_> {
        let now = Now { monotonic: MonotonicMs(now), wall: TimestampMs(START_MS + now) };
        Context { now, image, record_max: usize::MAX }
    }

    /// Another coordinator takes over.
    fn restart(&mut self, out: &mut Out) {
        self.machine = Transactions::new(SETTINGS);
        for (key, value) in &self.log {
            self.machine.replay(Offset(0), None, key.clone(), value.clone()).expect("a sound record");
        }
        self.machine.begin(&Script::context(self.now, &self.image), out);
    }

    fn run(&mut self, line: &str) -> String {
        self.now = int(line, "now", self.now);
        let mut out = Out::default();
        match line.split_whitespace().next().expect("a command") {
            "version" => self.image = image_at(int(line, "is", 0) as i16),
            "restart" => self.restart(&mut out),
            "tick" => self.machine.tick(&Script::context(self.now, &self.image), &mut out),
            "raise" => self.raise(ProducerEpoch(int(line, "to", 0) as i16)),
            word => {
                let command = self.command(word, line);
                self.machine.step(&Script::context(self.now, &self.image), ReplyToken(0), command, &mut out);
            }
        }
        let mut text = String::new();
        self.tell(out, &mut text);
        text
    }

    /// The id is as after very many transactions.
    fn raise(&mut self, epoch: ProducerEpoch) {
        let raised = Transaction { epoch, ..self.machine.transactions["a"].clone() };
        let context = Script::context(self.now, &self.image);
        let mut out = Out::default();
        self.machine.put(&context, "a", raised, &mut out);
        self.log.extend(out.records.iter().map(|write| write.record.encode().expect("a record has bytes")));
    }

    fn command(&self, word: &str, line: &str) -> Command {
        let transactional_id = arg(line, "id").unwrap_or("a").to_owned();
        let of = || producer(arg(line, "by").expect("a producer"));
        let client_version = TransactionVersion(int(line, "tv", 2) as i16);
        let fresh = None;
        match word {
            "init" => Command::InitProducerId(InitProducerId {
                transactional_id,
                timeout_ms: int(line, "timeout", 60_000) as i32,
                expected: arg(line, "by").map(producer),
                fresh,
            }),
            "add" => Command::AddPartitions(AddPartitions {
                transactional_id,
                producer: of(),
                partitions: partitions(line),
                client_version,
            }),
            "verify" => {
                Command::Verify(Verify { transactional_id, producer: of(), partitions: partitions(line) })
            }
            "commit" | "abort" => {
                let result = if word == "commit" { TxnResult::Commit } else { TxnResult::Abort };
                Command::EndTxn(EndTxn { transactional_id, producer: of(), result, client_version, fresh })
            }
            "written" => {
                let current = self.machine.transactions.get(&transactional_id).map_or(0, |it| it.started.0);
                let started = TimestampMs(START_MS + int(line, "began", current - START_MS));
                let (producer, partitions) = (of(), partitions(line));
                Command::MarkersWritten { transactional_id, producer, started, partitions }
            }
            "describe" => Command::Describe(transactional_id),
            "list" => {
                let named = |name: &str| State::ALL.into_iter().find(|state| state.name() == name);
                Command::List(Filter {
                    producer_ids: arg(line, "of").iter().map(|id| ProducerId(id.parse().unwrap())).collect(),
                    states: arg(line, "in").map(|names| names.split(',').filter_map(named).collect()),
                    longer_than_ms: arg(line, "longer").map(|ms| ms.parse().unwrap()),
                })
            }
            _ => panic!("{line}: no such command"),
        }
    }

    /// Tells what a step led to, and gives producer ids where they are wanted.
    fn tell(&mut self, out: Out, text: &mut String) {
        for write in &out.records {
            assert_eq!(write.producer, None);
            self.log.push(write.record.encode().expect("a record has bytes"));
            let Record { transactional_id, value } = &write.record;
            match value {
                None => writeln!(text, "record: {transactional_id} is forgotten").unwrap(),
                Some(value) => {
                    let shown = describe(&value.value, value.version);
                    writeln!(text, "record: {transactional_id} {shown}").unwrap();
                }
            }
        }
        for effect in out.effects {
            match effect {
                Effect::Write(markers) => {
                    let Markers { transactional_id, producer, result, version, partitions, .. } = markers;
                    let to: Vec<String> = partitions.iter().map(ToString::to_string).collect();
                    let (id, epoch, to) = (producer.id, producer.epoch, to.join(" "));
                    let version = version.0;
                    writeln!(
                        text,
                        "markers: {transactional_id} {result:?} {id}:{epoch} version {version} to {to}"
                    )
                    .unwrap();
                }
                Effect::NeedsProducerId { transactional_id, producer } => {
                    let fresh = Some(self.fresh(text));
                    self.again(Command::AbortTimedOut { transactional_id, producer, fresh }, text);
                }
            }
        }
        for (_, reply) in out.replies {
            match reply {
                Reply::Noted => {}
                Reply::NeedsProducerId(command) => {
                    let mut command = *command;
                    let fresh = Some(self.fresh(text));
                    match &mut command {
                        Command::InitProducerId(init) => init.fresh = fresh,
                        Command::EndTxn(end) => end.fresh = fresh,
                        other => panic!("{other:?} wants no producer id"),
                    }
                    self.again(command, text);
                }
                reply => writeln!(text, "{}", describe_reply(reply)).unwrap(),
            }
        }
    }

    fn fresh(&mut self, text: &mut String) -> ProducerId {
        self.last_id += 1;
        writeln!(text, "takes producer id {}", self.last_id).unwrap();
        ProducerId(self.last_id)
    }

    fn again(&mut self, command: Command, text: &mut String) {
        let mut out = Out::default();
        self.machine.step(&Script::context(self.now, &self.image), ReplyToken(0), command, &mut out);
        self.tell(out, text);
    }
}

fn since(ms: i64) -> String {
    if ms < 0 { "-".to_owned() } else { (ms - START_MS).to_string() }
}

fn describe(value: &TransactionLogValue, version: i16) -> String {
    let topics = value.transaction_partitions.iter().flatten();
    let named = topics.flat_map(|topic| {
        topic.partition_ids.iter().map(|index| format!("{}-{index}", topic.topic.as_str()))
    });
    let state = Transaction::from_value(value).expect("a state").state;
    let mut text = format!(
        "v{version} {} {}:{} [{}] started {} updated {} client {}",
        state.name(),
        value.producer_id,
        value.producer_epoch,
        named.collect::<Vec<_>>().join(" "),
        since(value.transaction_start_timestamp_ms),
        since(value.transaction_last_update_timestamp_ms),
        value.client_transaction_version,
    );
    if value.previous_producer_id != value.producer_id {
        write!(text, " previous {}", value.previous_producer_id).unwrap();
    }
    if value.next_producer_id != -1 {
        write!(text, " next {}", value.next_producer_id).unwrap();
    }
    text
}

fn describe_reply(reply: Reply) -> String {
    let shown = |Producer { id, epoch }| format!("{id}:{epoch}");
    match reply {
        Reply::InitProducerId(Ok(producer)) | Reply::EndTxn(Ok(Some(producer))) => shown(producer),
        Reply::AddPartitions(Ok(())) | Reply::EndTxn(Ok(None)) => "ok".to_owned(),
        Reply::Verify(Ok(missing)) if missing.is_empty() => "ok".to_owned(),
        Reply::Verify(Ok(missing)) => {
            let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
            format!("not in the transaction: {}", missing.join(" "))
        }
        Reply::InitProducerId(Err(refused))
        | Reply::AddPartitions(Err(refused))
        | Reply::Verify(Err(refused))
        | Reply::EndTxn(Err(refused)) => refused.to_string(),
        Reply::Described(None) => "not known".to_owned(),
        Reply::Described(Some(found)) => {
            let unmarked: Vec<String> = found.unmarked.iter().map(ToString::to_string).collect();
            let (state, producer) = (found.state.name(), shown(found.producer()));
            format!("{state} {producer} timeout {} missing [{}]", found.timeout_ms, unmarked.join(" "))
        }
        Reply::Listed(listed) => {
            let shown = |listed: &Listed| {
                format!("{} {} {}", listed.transactional_id, listed.producer_id, listed.state.name())
            };
            format!("listed: {}", listed.iter().map(shown).collect::<Vec<_>>().join(", "))
        }
        Reply::Noted | Reply::NeedsProducerId(_) => unreachable!("dealt with before"),
    }
}

#[test]
fn scripts_hold() {
    check_scripts("tests/transaction", || {
        let mut script = Script::new();
        move |line: &str| script.run(line)
    });
}
