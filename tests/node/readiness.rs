//! Whether a node serves, asked while it starts.

use std::fs;
use std::io::ErrorKind;

use floodmark::wire::messages::*;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::harness::TestNode;
use super::requests::{create_topic, produce_ok};

#[tokio::test]
async fn a_node_whose_logs_are_still_checked_says_so_and_serves_nobody_yet() {
    let (node, mut client) = TestNode::with_topic(&[], "t", 1).await;
    create_topic(&mut client, "held", 1, &[]).await;
    for topic in ["t", "held"] {
        produce_ok(&mut client, topic, 0, &["a"]).await;
    }
    let ready = client.call(0, ReadinessRequest::default()).await;
    assert_eq!((ready.not_ready, ready.node_id, ready.leader), (None, 1, 1));
    let held = node.dir.path().join("held-0");
    let first = held.join("00000000000000000000.log");
    let mut node = node
        .begin_after(|dir| {
            fs::remove_file(dir.join(".kafka_cleanshutdown")).unwrap();
            fs::remove_file(dir.join("recovery-point-offset-checkpoint")).unwrap();
            // Who opens it waits for somebody who writes.
            fs::remove_file(&first).unwrap();
            mknodat(CWD, &first, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
            fs::write(held.join("00000000000000000007.log"), [0; 300]).unwrap();
        })
        .await;
    let (dir, broker) = (node.dir.path().to_owned(), node.broker_address());
    let controller = node.controller_address();
    let (mut early, mut asking) = (node.connect().await, node.connect().await);
    early.send(2, &ApiVersionsRequest::default()).await;
    let ask = async {
        let wanted = format!(
            "it opens its logs: 1 left, with 2 segments and 300 bytes to check; {}: 1 left, with 2 segments and 300 bytes to \
             check",
            dir.display()
        );
        loop {
            let answer = asking.call(0, ReadinessRequest::default()).await;
            assert_eq!(answer.node_id, 1);
            if answer.not_ready.expect("a log is held up").as_str() == wanted {
                break;
            }
        }
        let health = move || {
            let mut health = std::process::Command::new(env!("CARGO_BIN_EXE_floodmark"));
            health.env_clear().args(["health", "--address", &broker.to_string()]).output().unwrap()
        };
        let told = tokio::task::spawn_blocking(health).await.unwrap();
        let stderr = String::from_utf8(told.stderr).unwrap();
        assert_eq!(told.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains(&format!("broker 1 at {broker} is not in service: {wanted}")), "{stderr}");
        let unanswered = early.stream.try_read(&mut [0]).map_err(|error| error.kind());
        assert_eq!(unanswered, Err(ErrorKind::WouldBlock));
        // The controller, which can be asked for all else, has all that it needs.
        let mut controller = super::client::Client::connect(controller).await;
        assert_eq!(controller.call(0, ReadinessRequest::default()).await.not_ready, None);
        let release = move || fs::OpenOptions::new().write(true).open(first).map(drop);
        tokio::task::spawn_blocking(release).await.unwrap().unwrap();
    };
    tokio::join!(node.open(), ask);
    let versions: ApiVersionsResponse = early.receive().await;
    assert_eq!(versions.error_code, 0);
    assert_eq!(asking.call(0, ReadinessRequest::default()).await.not_ready, None);
    node.stop().await;
}

#[tokio::test]
async fn who_gives_up_waiting_is_not_served_later() {
    let node = TestNode::start(&[]).await;
    let mut node = node.begin_after(|_| {}).await;
    let mut gone = node.connect().await;
    gone.send(2, &ApiVersionsRequest::default()).await;
    tokio::io::AsyncWriteExt::shutdown(&mut gone.stream).await.unwrap();
    // It is not kept until the node serves, which it never does here.
    gone.expect_closed().await;
    node.open().await;
    node.stop().await;
}
