//! What is left to do of the start: the logs that wait to be opened. Must not know who wants to know.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::LogDirs;
use crate::storage::log_dir::Left;

impl LogDirs {
    /// From now on what was found in the directories and not taken away is going to be opened.
    pub fn expect_opening(&self) {
        let mut waiting: HashMap<usize, Vec<PathBuf>> = HashMap::new();
        for (index, found) in self.contents().unopened.values().flatten() {
            waiting.entry(*index).or_default().push(found.path.clone());
        }
        for (index, dirs) in waiting {
            self.directories[index].dir().expect_opening(dirs);
        }
    }

    /// Whatever was to be opened has been.
    pub fn opened(&self) {
        self.directories.iter().for_each(|directory| directory.dir().opened());
    }

    /// What is left in each directory, as far as it was counted.
    pub fn left(&self) -> impl Iterator<Item = (&Path, Left)> {
        self.directories.iter().map(|directory| (directory.path(), directory.dir().left()))
    }

    /// Counts how much is to be checked of what waits.
    pub fn count_left(&self) {
        self.directories.iter().for_each(|directory| directory.dir().count_left());
    }
}
