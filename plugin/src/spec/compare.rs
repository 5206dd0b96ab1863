//! Whether two Shims mean the same, and where not; pure.
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt as _;
use serde_json::Value;
use shim_core::{
    api::{RolloutStrategy, Shim, ShimSpec},
    limits,
    world::{Rollout, Share},
};

use crate::{
    cli::{Strategy, values::int_or_percent},
    exit::Failure,
    views::one_line,
};

/// What stands for a field that is not set.
const ABSENT: &str = "absent";

/// A field whose value there is not the one that was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Such as `spec.rolloutStrategy.paused`.
    pub path: String,
    there: String,
    given: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} there, {} given", self.path, self.there, self.given)
    }
}

/// Where a live Shim is not what is given. What a spec leaves out counts as its default; labels and annotations that are
/// not given belong to others.
pub fn differences(live: &Shim, given: &Shim) -> Result<Vec<Difference>, Failure> {
    let mut found = Vec::new();
    let maps = [
        ("metadata.labels", live.labels(), given.labels()),
        ("metadata.annotations", live.annotations(), given.annotations()),
    ];
    for (path, there, given) in maps {
        for (key, value) in given.iter().filter(|(key, value)| there.get(*key) != Some(*value)) {
            let there = there.get(key).map_or(ABSENT, String::as_str);
            found.push(difference(&format!("{path}.{key}"), there, value));
        }
    }
    let json = |shim| serde_json::to_value(filled(shim)).map_err(Failure::error);
    compare(Some(&json(live)?), Some(&json(given)?), "spec", &mut found);
    Ok(found)
}

fn compare(there: Option<&Value>, given: Option<&Value>, path: &str, found: &mut Vec<Difference>) {
    if let (Some(Value::Object(there)), Some(Value::Object(given))) = (there, given) {
        let new = given.keys().filter(|key| !there.contains_key(*key));
        for key in there.keys().chain(new) {
            compare(there.get(key), given.get(key), &format!("{path}.{key}"), found);
        }
    } else if there != given {
        found.push(difference(path, &shown(there), &shown(given)));
    }
}

fn difference(path: &str, there: &str, given: &str) -> Difference {
    Difference { path: one_line(path), there: one_line(there), given: one_line(given) }
}

fn shown(value: Option<&Value>) -> String {
    match value {
        None => ABSENT.to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    }
}

/// The spec with the defaults written out.
fn filled(shim: &Shim) -> ShimSpec {
    let mut spec = shim.spec.clone();
    spec.node_selector.get_or_insert_default();
    spec.tolerations.get_or_insert_default();
    spec.runtime_class.handler.get_or_insert_with(|| shim.name_any());
    spec.runtime_class.tolerations.get_or_insert_default();
    spec.revision_history_limit.get_or_insert(u32::try_from(limits::HISTORY).unwrap_or(u32::MAX));
    fill(spec.rollout_strategy.get_or_insert_default());
    spec
}

fn fill(strategy: &mut RolloutStrategy) {
    let usual = Rollout::default();
    let rolling = Strategy::Rolling.field();
    // All at once has neither pace nor canary.
    if strategy.kind.get_or_insert_with(|| rolling.to_owned()) == rolling {
        let max_update = &mut strategy.rolling.get_or_insert_default().max_update;
        default_to(max_update, usual.max_update);
        default_to(&mut strategy.canary, usual.canary);
    }
    default_to(&mut strategy.max_failures, usual.max_failures);
    strategy.paused.get_or_insert(usual.paused);
}

fn default_to(field: &mut Option<IntOrString>, usual: Share) {
    *field = field.take().or_else(|| int_or_percent(usual).ok());
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shim(more: &Value) -> Shim {
        let mut spec = json!({"version": "v1", "runtimeClass": {"name": "spin"},
            "fetchStrategy": {"anonHttp": {"location": "https://x/a", "sha256": "ab"}}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Shim::new("spin", serde_json::from_value(spec).unwrap())
    }

    fn told(there: &Value, given: &Value) -> Vec<String> {
        differences(&shim(there), &shim(given)).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_default_is_the_same_written_or_not() {
        let written = json!({"nodeSelector": {}, "tolerations": [], "revisionHistoryLimit": 10,
            "runtimeClass": {"name": "spin", "handler": "spin"}, "rolloutStrategy": {"type": "rolling",
            "rolling": {"maxUpdate": "10%"}, "canary": 1, "maxFailures": 1, "paused": false}});
        assert_eq!(told(&written, &json!({})), [""; 0]);
        assert_eq!(told(&json!({}), &written), [""; 0]);
        let at_once = |more: &Value| json!({"rolloutStrategy": more});
        let long = json!({"type": "recreate", "maxFailures": 1});
        assert_eq!(told(&at_once(&json!({"type": "recreate"})), &at_once(&long)), [""; 0]);
    }

    #[test]
    fn what_differs_is_named_with_both_values() {
        let there = json!({"binary": "b", "nodeSelector": {"a": "1"}, "rolloutStrategy": {"paused": true}});
        let given = json!({"version": "v2", "nodeSelector": {"b": "2"},
            "rolloutStrategy": {"rolling": {"maxUpdate": 1}}, "containerdRuntimeOptions": {"A": true}});
        let mut lines = told(&there, &given);
        lines.sort();
        let wanted = [
            "spec.binary: b there, absent given",
            "spec.containerdRuntimeOptions: absent there, {\"A\":true} given",
            "spec.nodeSelector.a: 1 there, absent given",
            "spec.nodeSelector.b: absent there, 2 given",
            "spec.rolloutStrategy.paused: true there, false given",
            "spec.rolloutStrategy.rolling.maxUpdate: 10% there, 1 given",
            "spec.version: v1 there, v2 given",
        ];
        assert_eq!(lines, wanted);
    }

    #[test]
    fn labels_of_others_do_not_count() {
        let (mut live, mut given) = (shim(&json!({})), shim(&json!({})));
        live.labels_mut().insert("other".into(), "x".into());
        assert_eq!(differences(&live, &given).unwrap(), []);
        given.labels_mut().insert("team".into(), "a".into());
        let found = differences(&live, &given).unwrap();
        assert_eq!(found[0].to_string(), "metadata.labels.team: absent there, a given");
    }
}
