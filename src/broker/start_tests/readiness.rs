//! What a broker says of itself while it starts.

use std::path::PathBuf;

use super::super::readiness::NotReady;
use super::*;
use crate::storage::log::Amount;
use crate::storage::log_dir::Left;
use crate::storage::sim_disk::FaultOn;

const A: DirectoryId = DirectoryId::from_u128(0xa000);
const B: DirectoryId = DirectoryId::from_u128(0xb000);

#[tokio::test]
async fn a_start_tells_what_is_left_to_check() {
    let (disk, directories) = (SimDisk::new(), [(Path::new("/a"), Some(A)), (Path::new("/b"), Some(B))]);
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut node = Node::start_with(shared.clone(), Path::new("/a"), &directories, &[]).await;
    // More than are opened at a time.
    let topics = [("t", 1, A), ("u", 2, A), ("v", 3, A), ("w", 4, A), ("x", 5, B)];
    for (name, topic, dir) in topics {
        node.create_in(name, topic, 1, dir).await;
        for value in &["a", "b", "c"][..topic.min(3) as usize] {
            node.produce(id(topic, 0), &[value]).await;
        }
    }
    node.stop().await;
    for dir in ["/a", "/b"] {
        for file in [CLEAN_SHUTDOWN_FILE, OffsetCheckpoint::RecoveryPoint.file_name()] {
            disk.remove_file(&Path::new(dir).join(file)).unwrap();
        }
    }
    let size = |dir: &str, names: &[&str]| -> u64 {
        let path = |name: &&str| format!("{dir}/{name}-0/00000000000000000000.log");
        names.iter().map(|name| disk.stat(Path::new(&path(name))).unwrap().len).sum()
    };
    let left = |dir: &str, names: &[&str]| {
        let logs = names.len() as u64;
        let unchecked = Amount { segments: logs, bytes: size(dir, names) };
        (PathBuf::from(dir), Left { logs, uncounted: 0, unchecked })
    };
    let opening = NotReady::Opening(vec![left("/a", &["t", "u", "v", "w"]), left("/b", &["x"])]);
    disk.hang(FaultOn::Read, "00000000000000000000.log");
    let (metadata, controller, options) = Node::prepare(shared, Path::new("/a"), &directories, &[]).await;
    let readiness = options.readiness.clone();
    assert!(matches!(readiness.not_ready(ME, &metadata).await, Some(NotReady::Joining { .. })));
    let starting = tokio::spawn(start(options, metadata.clone()));
    while readiness.not_ready(ME, &metadata).await.as_ref() != Some(&opening) {
        assert!(!starting.is_finished(), "nothing holds it up");
        tokio::task::yield_now().await;
    }
    disk.heal();
    let (handles, mut broker) = starting.await.unwrap().unwrap();
    let Some(NotReady::Fenced { reached, known }) = readiness.not_ready(ME, &metadata).await else {
        panic!("it is fenced")
    };
    assert!(reached <= known);
    broker.unfence().await.unwrap();
    assert_eq!(readiness.not_ready(ME, &metadata).await, None);
    Node { metadata, controller, handles, broker }.stop().await;
}
