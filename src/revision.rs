//! Revisions: the build inputs of a Shim, numbered, and what became of them.
//!
//! Each is a ControllerRevision in the controller's namespace: its `data` can't be changed, its fate is in annotations.
//! Going back makes a new one. It belongs to its Shim (ownerReference), and goes with it.
use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{
    api::apps::v1::ControllerRevision,
    apimachinery::pkg::{
        apis::meta::v1::{ObjectMeta, OwnerReference},
        runtime::RawExtension,
    },
};
use kube::{Resource, ResourceExt};
use serde::{Deserialize, Serialize};

use crate::{
    api::{FetchStrategy, Shim, ShimSpec},
    names::{
        AUTHOR_ANNOTATION, GENERATION_ANNOTATION, MANAGED_BY_LABEL, MANAGER, ROLLOUT_ANNOTATION, SHIM_LABEL, ShimName,
    },
};

/// The part of a spec that decides what nodes get; another budget or selector makes no new revision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Inputs {
    /// `spec.version`
    pub version: String,
    /// `spec.fetchStrategy`
    pub fetch_strategy: FetchStrategy,
    /// `spec.binary`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binary: Option<String>,
    /// `spec.containerdRuntimeOptions`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containerd_runtime_options: Option<BTreeMap<String, serde_json::Value>>,
}

impl From<&ShimSpec> for Inputs {
    fn from(spec: &ShimSpec) -> Self {
        Self {
            version: spec.version.clone(),
            fetch_strategy: spec.fetch_strategy.clone(),
            binary: spec.binary.clone(),
            containerd_runtime_options: spec.containerd_runtime_options.clone(),
        }
    }
}

impl Inputs {
    /// Puts them into a spec, which is how one goes back.
    pub fn restore(&self, spec: &mut ShimSpec) {
        spec.version.clone_from(&self.version);
        spec.fetch_strategy.clone_from(&self.fetch_strategy);
        spec.binary.clone_from(&self.binary);
        spec.containerd_runtime_options.clone_from(&self.containerd_runtime_options);
    }
}

/// What became of a revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fate {
    /// It is being rolled out.
    Progressing,
    /// Every node that could be served got it.
    Complete,
    /// Too many nodes failed.
    Failed,
    /// Another one came before it was through.
    Superseded,
}

/// The fate of a revision, as it was last written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// What became of it.
    pub fate: Fate,
    /// Nodes that had it then.
    pub updated: u32,
    /// Nodes that were to have it.
    pub nodes: u32,
    /// When.
    pub at: Timestamp,
}

/// A revision.
#[derive(Debug, Clone, PartialEq)]
pub struct RevisionView {
    /// The Shim.
    pub shim: ShimName,
    /// From 1, never used again.
    pub number: i64,
    /// What it was made of.
    pub inputs: Inputs,
    /// When.
    pub created: Timestamp,
    /// `metadata.generation` of the Shim that it was made from.
    pub generation: i64,
    /// Who asked for it.
    pub author: String,
    /// What became of it; `None`: it is on its way.
    pub record: Option<Record>,
}

impl RevisionView {
    /// Name of the object: no two Shims share one, since a number is its last part.
    pub fn object_name(shim: &ShimName, number: i64) -> String {
        format!("shim-{shim}-{number}")
    }

    /// What became of it.
    pub fn fate(&self) -> Fate {
        self.record.map_or(Fate::Progressing, |record| record.fate)
    }

    /// Reads a revision of one of these Shims; those of an earlier Shim of the name do not count.
    pub fn read(object: &ControllerRevision, uid_of: impl Fn(&ShimName) -> Option<String>) -> Option<Self> {
        let annotation = |key: &str| object.annotations().get(key);
        let shim: ShimName = object.labels().get(SHIM_LABEL)?.parse().ok()?;
        let uid = uid_of(&shim)?;
        if !object.owner_references().iter().any(|owner| owner.uid == uid) {
            return None;
        }
        Some(Self {
            number: object.revision,
            inputs: serde_json::from_value(object.data.as_ref()?.0.clone()).ok()?,
            created: object.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            generation: annotation(GENERATION_ANNOTATION).and_then(|text| text.parse().ok()).unwrap_or_default(),
            author: annotation(AUTHOR_ANNOTATION).cloned().unwrap_or_default(),
            record: annotation(ROLLOUT_ANNOTATION).and_then(|text| serde_json::from_str(text).ok()),
            shim,
        })
    }

    /// The object to create. `uid`: that of the Shim.
    pub fn object(&self, uid: &str, namespace: &str) -> Result<ControllerRevision, serde_json::Error> {
        let owner = OwnerReference {
            api_version: Shim::api_version(&()).into_owned(),
            kind: Shim::kind(&()).into_owned(),
            name: self.shim.to_string(),
            uid: uid.to_owned(),
            ..OwnerReference::default()
        };
        let text = |pairs: [(&str, String); 2]| Some(pairs.map(|(key, value)| (key.to_owned(), value)).into());
        Ok(ControllerRevision {
            metadata: ObjectMeta {
                name: Some(Self::object_name(&self.shim, self.number)),
                namespace: Some(namespace.to_owned()),
                labels: text([(MANAGED_BY_LABEL, MANAGER.to_owned()), (SHIM_LABEL, self.shim.to_string())]),
                annotations: text([
                    (AUTHOR_ANNOTATION, self.author.clone()),
                    (GENERATION_ANNOTATION, self.generation.to_string()),
                ]),
                owner_references: Some(vec![owner]),
                ..ObjectMeta::default()
            },
            data: Some(RawExtension(serde_json::to_value(&self.inputs)?)),
            revision: self.number,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> RevisionView {
        let spec = serde_json::json!({"version": "v1", "fetchStrategy": {"anonHttp": {"location": "https://h/a", "sha256": "0"}}});
        RevisionView {
            shim: "a-1".parse().unwrap(),
            number: 2,
            inputs: serde_json::from_value(spec).unwrap(),
            created: Timestamp::UNIX_EPOCH,
            generation: 7,
            author: "kubectl-shim (alice)".to_owned(),
            record: None,
        }
    }

    #[test]
    fn a_revision_survives_its_object() {
        let object = view().object("u1", "ns").unwrap();
        assert_eq!(object.name_any(), "shim-a-1-2");
        assert_eq!(RevisionView::read(&object, |_| Some("u1".to_owned())), Some(view()));
    }

    #[test]
    fn a_revision_of_an_earlier_shim_of_the_name_does_not_count() {
        let object = view().object("u1", "ns").unwrap();
        assert_eq!(RevisionView::read(&object, |_| Some("u2".to_owned())), None);
        assert_eq!(RevisionView::read(&object, |_| None), None);
    }

    #[test]
    fn the_fate_is_read_from_the_annotation() {
        let mut object = view().object("u1", "ns").unwrap();
        let record = Record { fate: Fate::Complete, updated: 3, nodes: 4, at: Timestamp::UNIX_EPOCH };
        object.annotations_mut().insert(ROLLOUT_ANNOTATION.to_owned(), serde_json::to_string(&record).unwrap());
        let read = RevisionView::read(&object, |_| Some("u1".to_owned())).unwrap();
        assert_eq!((read.record, read.fate()), (Some(record), Fate::Complete));
    }
}
