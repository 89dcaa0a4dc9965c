//! A move is cut off anywhere, and then a broker starts with one of the two log directories, with the other one, with both, in any
//! order, while syncs fail. Whenever it serves the partition it has all that was ever promised, and with both it does.

use super::*;
use crate::storage::log::Origin;

const IDS: [DirectoryId; 2] = [DIRECTORY_ID, OTHER_ID];
/// Which directories are there at each start.
const ORDERS: [&[&[usize]]; 5] = [
    &[&[0], &[1], &[0, 1]],
    &[&[1], &[0], &[0, 1]],
    &[&[0, 1], &[0], &[1], &[0, 1]],
    &[&[0, 1], &[1], &[0], &[0, 1]],
    &[&[1], &[0, 1], &[0], &[0, 1]],
];

/// What outlives brokers.
struct World {
    disk: SimDisk,
    named: DirectoryId,
    epoch: i32,
    next: usize,
    promised: Vec<(Offset, String)>,
}

impl World {
    /// Starts as far as logs are opened and records taken. Whether the partition was served.
    fn start(&mut self, there: &[usize], what: &dyn std::fmt::Debug) -> bool {
        let shared: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let directory = |(index, at): (usize, &usize)| {
            let dir = open_dir_with_id(&shared, Path::new(PATHS[*at]), IDS[*at]);
            Arc::new(Directory::new(index, dir, Vec::new(), 0))
        };
        let directories: Vec<_> = there.iter().enumerate().map(directory).collect();
        let lost = (0..2).filter(|at| !there.contains(at)).map(|at| PATHS[at].into()).collect();
        let budgets = Budgets::new(1 << 20, 1 << 20, 100);
        let dirs = LogDirs::scan(ME, shared, directories, lost, budgets);
        let settings = load(&Sources::default()).expect("settings").layers.broker_config();
        let placement = dirs.placement(&settings, std::iter::empty(), false);
        let jobs = [(replica(self.named), Arc::new(config()))];
        let opened = dirs.open_all(&jobs, placement, 1, NOW).pop().expect("one");
        // As a broker does when it has started.
        dirs.remove(&dirs.take_interrupted());
        let Opened { mut log, directory, .. } = match opened {
            Ok(opened) => opened,
            Err(OpenError::NotWhereNamed | OpenError::AnnouncedCopyAlone | OpenError::Twin) => {
                self.named = directory_id::LOST;
                return false;
            }
            Err(_) => return false,
        };
        self.named = directory.id();
        let found = values_of(&log.view());
        for promised in &self.promised {
            assert!(found.contains(promised), "{what:?}: {promised:?} of {found:?}");
        }
        if !directory.is_online() {
            return true;
        }
        self.epoch += 1;
        log.assign_epoch_start(LeaderEpoch(self.epoch));
        let value = format!("start-{}", self.next);
        self.next += 1;
        let appended =
            log.append_as_leader(&records(&[&value]), LeaderEpoch(self.epoch), Origin::Client, NOW);
        if let Ok(appended) = appended
            && log.flush().is_ok()
        {
            self.promised.push((appended.first_offset, value));
        }
        true
    }
}

/// A broker whose partition is about to move, and has records that were not copied yet.
fn about_to_move() -> Broker {
    let mut broker = Broker::new();
    let produce = Step::Produce { records: 3, size: 150 };
    for step in [&produce, &produce, &Step::Flush, &Step::Checkpoint, &Step::Begin, &Step::Copy(1), &produce]
    {
        broker.step(step);
    }
    broker
}

/// The last step, with what comes behind it if the partition is served then.
fn move_on(broker: &mut Broker) {
    let done = broker.promote();
    if broker.partition.leadership().role == Role::Offline {
        // Who waited was told so, and nothing was promised.
        broker.waiting.clear();
    }
    broker.note_promises();
    broker.disk.heal();
    if done.is_some() && broker.partition.leadership().role == Role::Leader {
        for step in [Step::Produce { records: 2, size: 10 }, Step::Flush] {
            broker.step(&step);
        }
    }
}

fn left(broker: Broker, end: impl FnOnce(&SimDisk)) -> World {
    let Broker { disk, named, epoch, promised, .. } = broker;
    end(&disk);
    World { disk, named, epoch, next: 0, promised }
}

#[test]
fn whatever_directory_is_missing_what_is_served_has_everything() {
    let mut served = [0; 2];
    for (on, name) in [
        (FaultOn::Write, ""),
        (FaultOn::Sync, ""),
        (FaultOn::Sync, "other"),
        (FaultOn::Sync, "data"),
        (FaultOn::Rename, ""),
    ] {
        for (after, times) in (0..10).flat_map(|after| [(after, Some(1)), (after, None)]) {
            for (seed, order) in (0..6).flat_map(|seed| ORDERS.map(|order| (seed, order))) {
                let mut broker = about_to_move();
                broker.disk.fail(on, name, after, io::ErrorKind::Other, times);
                move_on(&mut broker);
                let mut world = left(broker, |disk| if seed == 0 { disk.kill() } else { disk.crash(seed) });
                for there in order {
                    let what = (on, name, after, times, seed, order, there);
                    let is_served = world.start(there, &what);
                    assert!(is_served || there.len() == 1, "{what:?}");
                    if there.len() == 1 {
                        served[there[0]] += usize::from(is_served);
                    }
                    world.disk.crash(seed + 1);
                }
            }
        }
    }
    // Before the last step the source is enough, and behind it the target.
    assert!(served.iter().all(|served| *served > 100), "{served:?}");
}

/// The process has ended between any two steps, with none of its names synced, and at the first start a directory cannot promise that
/// what it shows outlives the power.
#[test]
fn a_name_that_may_come_back_keeps_what_lacks_something_from_being_served() {
    let mut refused = 0;
    for renames in 0..3 {
        for (name, seed) in
            ["data", "other", ""].into_iter().flat_map(|name| (1..20).map(move |seed| (name, seed)))
        {
            for order in ORDERS {
                let mut broker = about_to_move();
                // The names are changed, and nothing of that is synced.
                broker.disk.fail(FaultOn::Rename, "t-0", renames, io::ErrorKind::Other, None);
                broker.disk.fail(FaultOn::Sync, "data", 0, io::ErrorKind::Other, None);
                move_on(&mut broker);
                let mut world = left(broker, SimDisk::kill);
                let what = (renames, name, seed, order);
                world.disk.fail(FaultOn::Sync, name, 0, io::ErrorKind::Other, None);
                refused += usize::from(!world.start(&[0, 1], &what));
                world.disk.heal();
                world.disk.crash(seed);
                for there in order {
                    let is_served = world.start(there, &what);
                    assert!(is_served || there.len() == 1, "{what:?}");
                    world.disk.crash(seed + 1);
                }
            }
        }
    }
    assert!(refused > 0);
}

/// Both have the name, as the disks had it that forgot what was done to them.
#[test]
fn of_two_logs_none_is_served_before_it_is_certain_which_has_more() {
    for (on, name) in
        [(FaultOn::Read, ".log"), (FaultOn::Open, ".log"), (FaultOn::Rename, "t-0"), (FaultOn::Sync, "")]
    {
        for (behind, after) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
            let mut broker = Broker::new();
            for step in [Step::Produce { records: 3, size: 50 }, Step::Flush, Step::Begin, Step::Copy(1)] {
                broker.step(&step);
            }
            assert_eq!(broker.promote(), Some(true));
            broker.step(&Step::Produce { records: 2, size: 10 });
            broker.step(&Step::Flush);
            let (_, before) = broker.before.take().expect("a log before");
            before.rename(Path::new("/data/t-0")).expect("renamed");
            broker.disk.sync_dir(Path::new(PATHS[0])).expect("synced");
            drop(before);
            let mut world = left(broker, SimDisk::kill);
            // The metadata may name either.
            world.named = IDS[behind];
            world.disk.fail(on, name, after, io::ErrorKind::Other, None);
            world.start(&[0, 1], &(on, name, behind, after));
            world.disk.heal();
            world.disk.crash(5);
            assert!(world.start(&[0, 1], &(on, name, behind, after)));
            world.disk.crash(6);
            for there in [[0], [1]] {
                world.start(&there, &(on, name, behind, after));
                world.disk.crash(7);
            }
        }
    }
}
