//! The requests of one account, counted from the audit log.
use std::collections::BTreeMap;

use shim_cluster::audit::{Access, Event};

/// The resource of the Lease, which is renewed whatever happens.
const LEASES: &str = "leases";

/// Counts of requests by verb and resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requests {
    reads: BTreeMap<(String, String), usize>,
    writes: BTreeMap<(String, String), usize>,
}

impl Requests {
    /// Those of the account whose name ends so, answered in whatever way.
    pub(crate) fn of(events: &[Event], user: &str) -> Self {
        let mut requests = Self::default();
        for event in events.iter().filter(|event| event.user.ends_with(user)) {
            let counts = if event.access() == Access::Write { &mut requests.writes } else { &mut requests.reads };
            *counts.entry((event.verb.clone(), event.resource.clone())).or_default() += 1;
        }
        requests
    }

    /// Writes on these resources.
    pub fn writes_on(&self, resources: &[&str]) -> usize {
        self.writes
            .iter()
            .filter(|((_, resource), _)| resources.contains(&resource.as_str()))
            .map(|(_, count)| count)
            .sum()
    }

    /// All writes beside the Lease's.
    pub fn writes(&self) -> usize {
        self.writes.iter().filter(|((_, resource), _)| resource != LEASES).map(|(_, count)| count).sum()
    }

    /// Writes of the Lease.
    pub fn lease_writes(&self) -> usize {
        self.writes_on(&[LEASES])
    }

    /// Reads; of watches those that have ended.
    pub fn reads(&self) -> usize {
        self.reads.values().sum()
    }

    /// All requests.
    pub fn all(&self) -> usize {
        self.reads.values().chain(self.writes.values()).sum()
    }

    /// Counts by verb, over all resources.
    pub fn by_verb(&self) -> BTreeMap<&str, usize> {
        let mut verbs = BTreeMap::new();
        for ((verb, _), count) in self.reads.iter().chain(&self.writes) {
            *verbs.entry(verb.as_str()).or_default() += count;
        }
        verbs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(user: &str, verb: &str, resource: &str) -> Event {
        Event {
            verb: verb.into(),
            resource: resource.into(),
            group: String::new(),
            subresource: String::new(),
            namespace: String::new(),
            name: String::new(),
            user: user.into(),
            pod: String::new(),
            user_agent: String::new(),
            code: 200,
            time: jiff::Timestamp::UNIX_EPOCH,
            request: None,
        }
    }

    #[test]
    fn the_lease_is_no_write_and_others_are_not_ours() {
        let events = [
            event("system:serviceaccount:a:shim-controller", "patch", "nodes"),
            event("system:serviceaccount:a:shim-controller", "create", "jobs"),
            event("system:serviceaccount:a:shim-controller", "update", "leases"),
            event("system:serviceaccount:a:shim-controller", "list", "jobs"),
            event("admin", "patch", "nodes"),
        ];
        let ours = Requests::of(&events, ":shim-controller");
        assert_eq!((ours.writes(), ours.lease_writes(), ours.reads(), ours.all()), (2, 1, 1, 4));
        assert_eq!(ours.writes_on(&["nodes"]), 1);
        assert_eq!(ours.by_verb().len(), 4);
    }
}
