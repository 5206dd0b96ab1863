//! The revisions of a Shim, digested: what became of each, and what it changed of the one before.
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use shim_core::{
    api::{FetchStrategy, Shim},
    revision::{Fate, Inputs, RevisionView},
};

/// Digits of a digest that people see.
const DIGITS: usize = 12;

/// One revision.
#[derive(Debug, Clone)]
pub struct Entry<'r> {
    /// As it is on record.
    pub revision: &'r RevisionView,
    /// What became of it.
    pub fate: Fate,
    /// Nodes that have or had it, and nodes that were to have it.
    pub nodes: Option<(u32, u32)>,
    /// When it was over: every node had it, or too many had failed.
    pub ended: Option<Timestamp>,
    /// What it changed.
    pub changes: Vec<String>,
}

/// One for each revision. `revisions`: newest first. `shim` knows how far the newest is.
pub fn entries<'r>(revisions: &'r [RevisionView], shim: &Shim) -> Vec<Entry<'r>> {
    let entry = |(n, revision): (usize, &'r RevisionView)| {
        let before = revisions.get(n + 1);
        let record = revision.record.filter(|record| record.fate != Fate::Progressing);
        let ended = record.filter(|record| record.fate != Fate::Superseded).map(|record| record.at);
        let on_record = record.map(|record| (record.updated, record.nodes));
        Entry {
            revision,
            fate: revision.fate(),
            nodes: on_record.or_else(|| under_way(shim, revision)),
            ended,
            changes: before.map(|before| changes(&before.inputs, &revision.inputs)).unwrap_or_default(),
        }
    };
    revisions.iter().enumerate().map(entry).collect()
}

fn under_way(shim: &Shim, revision: &RevisionView) -> Option<(u32, u32)> {
    let status = shim.status.as_ref()?;
    let is_current = status.revision.as_ref().is_some_and(|current| current.number == revision.number);
    is_current.then(|| (status.nodes_updated, status.nodes.saturating_sub(status.nodes_skipped)))
}

/// What is different, the version first. With another version, another artifact goes without saying.
fn changes(before: &Inputs, after: &Inputs) -> Vec<String> {
    let mut found = Vec::new();
    let artifacts = artifact_changes(&before.fetch_strategy, &after.fetch_strategy);
    if before.version == after.version {
        found.extend(artifacts);
    } else {
        found.push(format!("version {} -> {}", before.version, after.version));
        found.extend(artifacts.is_empty().then(|| "the same artifact".to_owned()));
    }
    found.extend(change("binary", before.binary.as_deref(), after.binary.as_deref()));
    let options = |inputs: &Inputs| inputs.containerd_runtime_options.clone().unwrap_or_default();
    let (old, new) = (options(before), options(after));
    let text = |value: Option<&serde_json::Value>| value.map(ToString::to_string);
    let keys: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    found.extend(keys.into_iter().filter_map(|key| {
        change(&format!("option {key}"), text(old.get(key)).as_deref(), text(new.get(key)).as_deref())
    }));
    found
}

fn change(what: &str, before: Option<&str>, after: Option<&str>) -> Option<String> {
    let shown = |value: Option<&str>| value.unwrap_or("<none>").to_owned();
    (before != after).then(|| format!("{what} {} -> {}", shown(before), shown(after)))
}

/// Location and digest by platform; one for all nodes stands under the empty name.
fn artifacts(fetch: &FetchStrategy) -> BTreeMap<String, (&str, &str)> {
    let one = fetch.anon_http.iter().map(|one| (String::new(), (one.location.as_str(), one.sha256.as_str())));
    let many = fetch.platforms.iter().flatten();
    let many = many.map(|p| (format!("{}/{} ", p.os, p.arch), (p.location.as_str(), p.sha256.as_str())));
    one.chain(many).collect()
}

fn artifact_changes(before: &FetchStrategy, after: &FetchStrategy) -> Vec<String> {
    let (old, new) = (artifacts(before), artifacts(after));
    let names: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let told = |name: &String| match (old.get(name), new.get(name)) {
        (Some(old), Some(new)) => [
            change(&format!("{name}digest"), Some(short(old.1)), Some(short(new.1))),
            change(&format!("{name}location"), Some(old.0), Some(new.0)),
        ]
        .into_iter()
        .flatten()
        .collect(),
        (Some(_), None) => vec![format!("{} removed", platform(name))],
        (None, _) => vec![format!("{} added", platform(name))],
    };
    names.into_iter().flat_map(told).collect()
}

fn platform(name: &str) -> String {
    let name = name.trim_end();
    if name.is_empty() { "artifact for all platforms".to_owned() } else { format!("artifact for {name}") }
}

fn short(digest: &str) -> &str {
    digest.get(..DIGITS).unwrap_or(digest)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn inputs(more: &Value) -> Inputs {
        let mut inputs = json!({"version": "v1", "fetchStrategy": {"anonHttp": {"location": "https://x/a", "sha256": "0123456789abcdef"}}});
        for (key, value) in more.as_object().unwrap() {
            inputs[key] = value.clone();
        }
        serde_json::from_value(inputs).unwrap()
    }

    fn told(before: &Value, after: &Value) -> Vec<String> {
        changes(&inputs(before), &inputs(after))
    }

    #[test]
    fn another_version_says_it_all() {
        let other =
            json!({"version": "v2", "fetchStrategy": {"anonHttp": {"location": "https://x/b", "sha256": "ff"}}});
        assert_eq!(told(&json!({}), &other), ["version v1 -> v2"]);
        assert_eq!(told(&json!({}), &json!({"version": "v2"})), ["version v1 -> v2", "the same artifact"]);
        assert_eq!(told(&json!({}), &json!({})), Vec::<String>::new());
    }

    #[test]
    fn within_a_version_every_input_is_told() {
        let other = json!({"fetchStrategy": {"anonHttp": {"location": "https://x/b", "sha256": "ffff456789abcdef"}}});
        assert_eq!(
            told(&json!({}), &other),
            ["digest 0123456789ab -> ffff456789ab", "location https://x/a -> https://x/b"]
        );
        assert_eq!(told(&json!({"binary": "a"}), &json!({})), ["binary a -> <none>"]);
        let options = |value: Value| json!({"containerdRuntimeOptions": {"A": value, "B": 1}});
        assert_eq!(told(&options(json!(true)), &options(json!("x"))), ["option A true -> \"x\""]);
        assert_eq!(told(&json!({}), &options(json!(1))), ["option A <none> -> 1", "option B <none> -> 1"]);
    }

    #[test]
    fn platforms_come_and_go() {
        let many = |names: &[&str]| {
            let one = |arch: &&str| json!({"os": "linux", "arch": arch, "location": "https://x/a", "sha256": "00"});
            json!({"fetchStrategy": {"platforms": names.iter().map(one).collect::<Vec<_>>()}})
        };
        assert_eq!(
            told(&many(&["amd64"]), &many(&["arm64"])),
            ["artifact for linux/amd64 removed", "artifact for linux/arm64 added"]
        );
        assert_eq!(
            told(&json!({}), &many(&["amd64"])),
            ["artifact for all platforms removed", "artifact for linux/amd64 added"]
        );
    }
}
