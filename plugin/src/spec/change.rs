//! What `upgrade` changes, and the smallest server-side apply that says so.
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Map, Value, json};
use shim_core::api::Shim;

use super::FIELD_MANAGER;
use crate::{cli::UpgradeArgs, exit::Failure};

/// One field that gets another value, or goes.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    path: &'static [&'static str],
    value: Option<Value>,
}

impl Change {
    fn set(path: &'static [&'static str], value: impl Into<Value>) -> Self {
        Self { path, value: Some(value.into()) }
    }

    fn unset(path: &'static [&'static str]) -> Self {
        Self { path, value: None }
    }

    fn write(&self, object: &mut Value) {
        let Some((last, parents)) = self.path.split_last() else { return };
        let mut at = object;
        for key in parents {
            // Only to remove something, no parent is made.
            if self.value.is_none() && at.get(key).is_none() {
                return;
            }
            at = &mut at[*key];
        }
        match (&self.value, at.as_object_mut()) {
            (Some(value), _) => at[*last] = value.clone(),
            (None, Some(fields)) => drop(fields.remove(*last)),
            (None, None) => {}
        }
    }
}

/// The changes that the flags ask for. Errors: none at all.
pub fn changes_of(args: &UpgradeArgs) -> Result<Vec<Change>, Failure> {
    let (artifact, rollout) = (&args.artifact, &args.rollout);
    if artifact.version.is_some() && artifact.url.is_none() && artifact.platforms.is_empty() {
        return Err(Failure::usage("--version needs an artifact: --url with --sha256, or --platform"));
    }
    let mut changes = Vec::new();
    changes.extend(artifact.version.as_ref().map(|version| Change::set(&["spec", "version"], version.as_str())));
    if let (Some(location), Some(sha256)) = (&artifact.url, &artifact.sha256) {
        changes
            .push(Change::set(&["spec", "fetchStrategy", "anonHttp"], json!({"location": location, "sha256": sha256})));
        changes.push(Change::unset(&["spec", "fetchStrategy", "platforms"]));
    }
    if !artifact.platforms.is_empty() {
        changes.push(Change::set(&["spec", "fetchStrategy", "platforms"], json!(artifact.platforms)));
        changes.push(Change::unset(&["spec", "fetchStrategy", "anonHttp"]));
    }
    changes.extend(artifact.binary.as_ref().map(|binary| Change::set(&["spec", "binary"], binary.as_str())));
    let map =
        |entries: Vec<(String, Value)>| (!entries.is_empty()).then(|| Value::Object(entries.into_iter().collect()));
    let selector = rollout.node_selector.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
    changes.extend(map(selector).map(|map| Change::set(&["spec", "nodeSelector"], map)));
    changes.extend(map(rollout.options.clone()).map(|map| Change::set(&["spec", "containerdRuntimeOptions"], map)));
    if !rollout.tolerations.is_empty() {
        changes.push(Change::set(&["spec", "tolerations"], json!(rollout.tolerations)));
    }
    let max_update = rollout.max_update.as_ref().map(|value| json!(value));
    changes.extend(max_update.map(|value| Change::set(&["spec", "rolloutStrategy", "rolling", "maxUpdate"], value)));
    changes.extend(args.paused.map(|paused| Change::set(&["spec", "rolloutStrategy", "paused"], paused)));
    if changes.is_empty() {
        Err(Failure::usage("nothing to change: give --url, --platform or another flag"))
    } else {
        Ok(changes)
    }
}

/// The Shim as it will be.
pub fn changed(live: &Shim, changes: &[Change]) -> Result<Shim, Failure> {
    let mut object = serde_json::to_value(live).map_err(Failure::error)?;
    for change in changes {
        change.write(&mut object);
    }
    serde_json::from_value(object).map_err(Failure::error)
}

/// What has to be applied: the fields that are ours already (an apply without them would give them up), with the
/// changes. Fields of other managers are left out, so that nothing is taken from them in silence.
pub fn apply_body(live: &Shim, changes: &[Change]) -> Result<Value, Failure> {
    let object = serde_json::to_value(live).map_err(Failure::error)?;
    let owned = live.managed_fields().iter().find(|entry| is_ours(entry)).and_then(|entry| entry.fields_v1.as_ref());
    let mut body =
        owned.and_then(|fields| fields.0.as_object()).map_or_else(|| json!({}), |fields| extract(&object, fields));
    body["apiVersion"] = Shim::api_version(&()).into();
    body["kind"] = Shim::kind(&()).into();
    body["metadata"]["name"] = live.name_any().into();
    // A Shim that was deleted and made again meanwhile is another one.
    body["metadata"]["uid"] = json!(live.metadata.uid);
    for change in changes {
        change.write(&mut body);
    }
    Ok(body)
}

/// Why a field that has to go would stay: an apply only removes what nobody else has set too.
pub fn held_by_others(live: &Shim, changes: &[Change]) -> Option<String> {
    let gone = || changes.iter().filter(|change| change.value.is_none());
    let others = live.managed_fields().iter().filter(|entry| !is_ours(entry));
    let mut held = others.filter_map(|entry| Some((entry, gone().find(|change| holds(entry, change.path))?)));
    let (entry, change) = held.next()?;
    let manager = entry.manager.as_deref().unwrap_or_default();
    Some(format!("{} has to go, and is managed by {manager:?}; change it there", change.path.join(".")))
}

fn holds(entry: &ManagedFieldsEntry, path: &[&str]) -> bool {
    let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
    path.iter().try_fold(fields, |fields, key| fields.map(|fields| fields.get(format!("f:{key}")))).flatten().is_some()
}

fn is_ours(entry: &ManagedFieldsEntry) -> bool {
    let apply =
        entry.operation.as_deref() == Some("Apply") && entry.subresource.as_deref().unwrap_or_default().is_empty();
    apply && entry.manager.as_deref() == Some(FIELD_MANAGER)
}

/// The part of `object` that `fields` (the FieldsV1 of managedFields) names.
fn extract(object: &Value, fields: &Map<String, Value>) -> Value {
    let named = fields.iter().filter_map(|(key, below)| Some((key.strip_prefix("f:")?, below)));
    let found = named.filter_map(|(name, below)| Some((name.to_owned(), part(object.get(name)?, below))));
    Value::Object(found.collect())
}

fn part(value: &Value, below: &Value) -> Value {
    match (value.is_object(), below.as_object().filter(|below| !below.is_empty())) {
        (true, Some(below)) => extract(value, below),
        _ => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(managed: &Value) -> Shim {
        serde_json::from_value(json!({
            "apiVersion": "shim.dev/v1alpha1", "kind": "Shim",
            "metadata": {"name": "spin", "uid": "u", "labels": {"team": "a", "other": "b"}, "managedFields": managed},
            "spec": {
                "version": "v1",
                "nodeSelector": {"spin": "true"},
                "fetchStrategy": {"anonHttp": {"location": "https://x/a", "sha256": "ab"}},
                "runtimeClass": {"name": "spin"},
                "rolloutStrategy": {"paused": true},
            },
        }))
        .unwrap()
    }

    fn ours() -> Value {
        json!([
            {"manager": "kubectl-shim", "operation": "Apply", "fieldsV1": {
                "f:metadata": {"f:labels": {"f:team": {}}},
                "f:spec": {"f:version": {}, "f:fetchStrategy": {"f:anonHttp": {".": {}, "f:location": {}, "f:sha256": {}}},
                    "f:runtimeClass": {"f:name": {}}}}},
            {"manager": "shim-controller", "operation": "Apply", "subresource": "status", "fieldsV1": {"f:status": {}}},
            {"manager": "flux", "operation": "Apply", "fieldsV1": {"f:spec": {"f:nodeSelector": {"f:spin": {}}}}},
        ])
    }

    #[test]
    fn what_is_applied_is_what_is_ours_with_the_change() {
        let changes = [
            Change::set(&["spec", "version"], "v2"),
            Change::set(&["spec", "fetchStrategy", "platforms"], json!([])),
            Change::unset(&["spec", "fetchStrategy", "anonHttp"]),
        ];
        let body = apply_body(&live(&ours()), &changes).unwrap();
        let wanted = json!({
            "apiVersion": "shim.dev/v1alpha1", "kind": "Shim",
            "metadata": {"name": "spin", "uid": "u", "labels": {"team": "a"}},
            "spec": {"version": "v2", "fetchStrategy": {"platforms": []}, "runtimeClass": {"name": "spin"}},
        });
        assert_eq!(body, wanted);
    }

    #[test]
    fn of_a_shim_of_somebody_else_only_the_change_is_applied() {
        let body = apply_body(&live(&json!([])), &[Change::set(&["spec", "version"], "v2")]).unwrap();
        assert_eq!(body["spec"], json!({"version": "v2"}));
    }

    #[test]
    fn what_others_hold_can_not_be_removed() {
        let held = json!([{"manager": "flux", "operation": "Apply", "fieldsV1": {
            "f:spec": {"f:fetchStrategy": {"f:anonHttp": {"f:location": {}}}}}}]);
        let changes = [Change::set(&["spec", "version"], "v2"), Change::unset(&["spec", "fetchStrategy", "anonHttp"])];
        let text = "spec.fetchStrategy.anonHttp has to go, and is managed by \"flux\"; change it there";
        assert_eq!(held_by_others(&live(&held), &changes).as_deref(), Some(text));
        assert_eq!(held_by_others(&live(&held), &changes[..1]), None);
        assert_eq!(held_by_others(&live(&ours()), &changes), None);
    }

    #[test]
    fn a_change_keeps_its_neighbours() {
        let changes =
            [Change::set(&["spec", "rolloutStrategy", "rolling", "maxUpdate"], 2), Change::unset(&["spec", "a", "b"])];
        let after = changed(&live(&json!([])), &changes).unwrap();
        let rollout = after.spec.rollout_strategy.unwrap();
        assert_eq!(rollout.paused, Some(true));
        assert_eq!(serde_json::to_value(rollout.rolling).unwrap(), json!({"maxUpdate": 2}));
        assert_eq!(after.spec.node_selector, live(&json!([])).spec.node_selector);
    }
}
