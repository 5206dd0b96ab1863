//! What the controller did, from the API server's audit log.
use std::collections::BTreeSet;

use anyhow::Result;
use jiff::Timestamp;
use serde_json::Value;
use shim_cluster::audit::{Access, Event, Offset};

use crate::support::Session;

/// Finished requests, in the order in which they came in.
pub(crate) struct Requests(Vec<Event>);

impl Requests {
    /// All from a place in the log to its end.
    pub(crate) fn since(session: &Session, start: Offset) -> Result<Self> {
        let (mut events, _) = session.cluster.audit().since(start)?;
        events.sort_by_key(|event| event.time);
        Ok(Self(events))
    }

    /// What controllers changed, other than their Lease.
    pub(crate) fn writes(&self) -> impl Iterator<Item = &Event> {
        let ours = |event: &&Event| event.user.ends_with(":shim-controller") && event.access() == Access::Write;
        self.0.iter().filter(ours).filter(|event| event.resource != "leases" && is_accepted(event))
    }

    /// Jobs that controllers created, with their nodes.
    pub(crate) fn jobs(&self) -> Vec<(&Event, &str)> {
        let created = self.writes().filter(|event| event.resource == "jobs" && event.verb == "create");
        created.filter_map(|event| Some((event, node_of(event)?))).collect()
    }

    /// When a node was first said to be ready for a Shim; it had not been before.
    pub(crate) fn ready(&self, node: &str, shim: &str) -> Option<Timestamp> {
        let path = format!("/metadata/labels/shim.dev~1{shim}");
        let says_ready = |change: &Value| change["path"] == path.as_str() && change["value"] == "ready";
        let changes = |event: &Event| event.request.as_ref().and_then(Value::as_array).cloned().unwrap_or_default();
        let mut marks = self.writes().filter(|event| event.resource == "nodes" && event.name == node);
        marks.find(|event| changes(event).iter().any(says_ready)).map(|event| event.time)
    }

    /// Unfinished Jobs at the same time: from their creation by a controller to the condition that ends them.
    pub(crate) fn most_jobs_at_once(&self) -> usize {
        let (mut unfinished, mut most) = (BTreeSet::new(), 0);
        for event in self.0.iter().filter(|event| event.resource == "jobs" && is_accepted(event)) {
            if event.verb == "create" {
                let name = event.request.as_ref().and_then(|job| job["metadata"]["name"].as_str());
                unfinished.insert(name.unwrap_or_default());
            } else if event.subresource == "status" && has_ended(event) {
                unfinished.remove(event.name.as_str());
            }
            most = most.max(unfinished.len());
        }
        most
    }
}

fn node_of(job: &Event) -> Option<&str> {
    job.request.as_ref()?["spec"]["template"]["spec"]["nodeName"].as_str()
}

fn is_accepted(event: &Event) -> bool {
    (200..300).contains(&event.code)
}

fn has_ended(event: &Event) -> bool {
    let conditions = event.request.as_ref().map(|job| &job["status"]["conditions"]);
    let ended = |condition: &Value| ["Complete", "Failed"].iter().any(|kind| condition["type"] == *kind);
    conditions.and_then(|conditions| conditions.as_array()).is_some_and(|conditions| conditions.iter().any(ended))
}
