//! What a Node remembers of each Shim, in one annotation and one label per Shim.
//!
//! The annotation is `v1,<shim>=claimed,<shim>=removing,<shim>=<build>@<machine id>@<time>[@<pods disrupted>[@<repairs>]]`.
//! It is written before the first Job, so that a node that may have been touched is never forgotten.
use std::{collections::BTreeMap, ops::Bound};

use jiff::Timestamp;

use crate::{
    names::{Build, MachineId, ShimName},
    world::Labels,
};

const VERSION: &str = "v1";
/// Value of the label of a Shim that pods may use on the node.
pub const LABEL_READY: &str = "ready";
/// Value of the label of a Shim that is on its way out.
pub const LABEL_REMOVING: &str = "removing";

/// What is known of one Shim on one Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mark {
    /// A Job of the Shim may have touched the node.
    Claimed,
    /// Installed and verified.
    Ready(Ready),
    /// No new pods; a removal may have begun.
    Removing,
}

/// What was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ready {
    /// The build that the node has.
    pub build: Build,
    /// The machine that it was verified on.
    pub machine: MachineId,
    /// When.
    pub since: Timestamp,
    /// Pods of others that the restart ended.
    pub disrupted: u32,
    /// How many times in a row it was installed again because the kubelet did not report the handler.
    pub repairs: u32,
}

/// The marks of one Node.
pub type Marks = BTreeMap<ShimName, Mark>;

impl Mark {
    /// Value of the Node label `shim.dev/<name>`, which RuntimeClasses select on.
    pub fn label(&self) -> Option<&'static str> {
        match self {
            Self::Claimed => None,
            Self::Ready(_) => Some(LABEL_READY),
            Self::Removing => Some(LABEL_REMOVING),
        }
    }
}

/// Reads the annotation. `None`: it was written by a newer version, or by hand, and the node is left alone.
pub fn parse(annotation: Option<&str>) -> Option<Marks> {
    let Some(text) = annotation.filter(|text| !text.is_empty()) else { return Some(Marks::new()) };
    let mut entries = text.split(',');
    if entries.next() != Some(VERSION) {
        return None;
    }
    entries.map(parse_entry).collect()
}

fn parse_entry(entry: &str) -> Option<(ShimName, Mark)> {
    let (name, value) = entry.split_once('=')?;
    let mark = match value {
        "claimed" => Mark::Claimed,
        "removing" => Mark::Removing,
        _ => Mark::Ready(parse_ready(value)?),
    };
    Some((name.parse().ok()?, mark))
}

fn parse_ready(value: &str) -> Option<Ready> {
    let mut fields = value.split('@');
    let (build, machine, since) = (fields.next()?, fields.next()?, fields.next()?);
    let mut count = || fields.next().map_or(Some(0), |count| count.parse().ok());
    let ready = Ready {
        build: build.parse().ok()?,
        machine: machine.parse().ok()?,
        since: since.parse().ok()?,
        disrupted: count()?,
        repairs: count()?,
    };
    fields.next().is_none().then_some(ready)
}

/// Text of the annotation; `None` where it has to go.
pub fn render(marks: &Marks) -> Option<String> {
    let entries = marks.iter().map(|(name, mark)| match mark {
        Mark::Claimed => format!(",{name}=claimed"),
        Mark::Removing => format!(",{name}=removing"),
        Mark::Ready(ready) => format!(",{name}={}", render_ready(ready)),
    });
    (!marks.is_empty()).then(|| entries.fold(VERSION.to_owned(), |text, entry| text + &entry))
}

fn render_ready(Ready { build, machine, since, disrupted, repairs }: &Ready) -> String {
    let verified = format!("{build}@{machine}@{since}");
    match (disrupted, repairs) {
        (0, 0) => verified,
        (_, 0) => format!("{verified}@{disrupted}"),
        _ => format!("{verified}@{disrupted}@{repairs}"),
    }
}

/// What every Node label of ours starts with, see [`ShimName::node_label`].
const LABEL_PREFIX: &str = "shim.dev/";

/// Whether the labels say what the marks say: somebody may have taken one off. Others' labels do not count.
pub fn labels_agree(marks: &Marks, labels: &Labels) -> bool {
    let prefixed = labels.range::<str, _>((Bound::Included(LABEL_PREFIX), Bound::Unbounded));
    // Both are in the order of the Shims' names.
    let mut ours =
        prefixed.map_while(|(key, value)| Some((key.strip_prefix(LABEL_PREFIX)?, value.as_str()))).peekable();
    marks.iter().all(|(name, mark)| {
        while ours.next_if(|(label, _)| *label < name.as_str()).is_some() {}
        ours.next_if(|(label, _)| *label == name.as_str()).map(|(_, value)| value) == mark.label()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_survive_the_annotation() {
        let verified = "0123456789ab@m-1@2026-11-30T08:00:00Z";
        let text = format!("v1,a=claimed,b=removing,c={verified},d={verified}@2,e={verified}@0@3");
        let marks = parse(Some(&text)).unwrap();
        assert_eq!(marks.len(), 5);
        assert_eq!(render(&marks), Some(text));
    }

    #[test]
    fn no_annotation_means_no_marks() {
        assert_eq!(parse(None), Some(Marks::new()));
        assert_eq!(render(&Marks::new()), None);
    }

    #[test]
    fn what_is_newer_or_damaged_is_not_read() {
        let entry = "v1,a=0123456789ab@m@2026-11-30T08:00:00Z";
        let (not_a_count, too_many) = (format!("{entry}@0@often"), format!("{entry}@0@1@2"));
        for text in [
            "v2,a=claimed",
            "a=claimed",
            "v1,a",
            "v1,a=0123456789ab@m@yesterday",
            "v1,A=claimed",
            &not_a_count,
            &too_many,
        ] {
            assert_eq!(parse(Some(text)), None, "{text}");
        }
    }
}
