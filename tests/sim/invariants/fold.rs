//! The fold law: the metadata is the fold of its log, and the fold of its own snapshot.

use super::Broken;
use crate::metadata::{Image, Record};

/// The log as it has become: it was folded record by record, as this is, so it is done once.
pub fn check(records: &[Record], head: &Image) -> Result<(), Broken> {
    let mut fold = Image::default();
    for record in records {
        fold.apply(record);
    }
    if fold == *head { Ok(()) } else { Err("fold: the log does not fold to the image".to_owned()) }
}

pub fn check_snapshot(head: &Image) -> Result<(), Broken> {
    if Image::from_snapshot(head.version, &head.to_records()) == *head {
        Ok(())
    } else {
        Err("fold: the image is not the fold of its snapshot".to_owned())
    }
}
