//! Tests of the metadata as a whole: golden records, scripts of decisions, and the fold law.

mod export;
mod golden;
mod laws;
pub(crate) mod replay;
mod script;

use super::{Decision, Image, Record};

/// A cluster that takes decisions as the controller does, and holds the laws at each step: what the log's bytes fold to
/// is the live image, and so is what the bytes of a snapshot fold to.
#[derive(Default)]
struct Cluster {
    image: Image,
    folded: Image,
}

impl Cluster {
    /// Commits what was decided on the current image; gives the reply, and the records in the form of people.
    fn commit<R>(&mut self, decision: Decision<R>) -> (R, Vec<String>) {
        let version = self.image.metadata_version();
        let mut lines = Vec::new();
        for record in &decision.records {
            let bytes = record.encode(version).expect("a decided record can be written");
            let (read, written_at) = Record::decode(bytes).expect("a written record can be read");
            assert_eq!(&read, record);
            self.folded.apply(&read);
            self.image.apply(record);
            let fields = record.fields_as_json(written_at).expect("a record can be shown");
            lines.push(format!("{} v{written_at} {fields}", record.name()));
        }
        assert_eq!(self.folded, self.image);
        self.check_snapshot();
        (decision.reply, lines)
    }

    fn check_snapshot(&self) {
        let version = self.image.metadata_version();
        let snapshot: Vec<Record> = self
            .image
            .to_records()
            .iter()
            .map(|record| Record::decode(record.encode(version).expect("written")).expect("read").0)
            .collect();
        assert_eq!(Image::from_snapshot(self.image.version, &snapshot), self.image);
    }
}
