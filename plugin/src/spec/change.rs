//! What a command changes of a Shim, and the smallest server-side apply that says so.
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Map, Value, json};
use shim_core::{api::Shim, names::CHANGED_BY_ANNOTATION, revision::Inputs};

use super::FIELD_MANAGER;
use crate::{
    cli::{ArtifactFlags, RolloutFlags, Strategy},
    exit::Failure,
};

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
pub fn changes_of(
    artifact: &ArtifactFlags,
    rollout: &RolloutFlags,
    paused: Option<bool>,
) -> Result<Vec<Change>, Failure> {
    let mut changes = artifact_changes(artifact)?;
    let map =
        |entries: Vec<(String, Value)>| (!entries.is_empty()).then(|| Value::Object(entries.into_iter().collect()));
    let selector = rollout.node_selector.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
    changes.extend(map(selector).map(|map| Change::set(&["spec", "nodeSelector"], map)));
    changes.extend(map(rollout.options.clone()).map(|map| Change::set(&["spec", "containerdRuntimeOptions"], map)));
    if !rollout.tolerations.is_empty() {
        changes.push(Change::set(&["spec", "tolerations"], json!(rollout.tolerations)));
    }
    changes.extend(pace_changes(rollout));
    changes.extend(paused.map(pausing));
    if changes.is_empty() {
        Err(Failure::usage("nothing to change: give --url, --platform or another flag"))
    } else {
        Ok(changes)
    }
}

fn artifact_changes(artifact: &ArtifactFlags) -> Result<Vec<Change>, Failure> {
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
    Ok(changes)
}

fn pace_changes(flags: &RolloutFlags) -> Vec<Change> {
    let mut changes = Vec::new();
    // What the other type does not know goes first: a flag that sets it all the same is refused by the schema's rule.
    if flags.strategy == Some(Strategy::Recreate) {
        changes.push(Change::unset(&["spec", "rolloutStrategy", "rolling"]));
        changes.push(Change::unset(&["spec", "rolloutStrategy", "canary"]));
    }
    let fields: [(&'static [&'static str], Option<Value>); 4] = [
        (&["spec", "rolloutStrategy", "type"], flags.strategy.map(|strategy| strategy.field().into())),
        (&["spec", "rolloutStrategy", "rolling", "maxUpdate"], flags.max_update.as_ref().map(|value| json!(value))),
        (&["spec", "rolloutStrategy", "canary"], flags.canary.as_ref().map(|value| json!(value))),
        (&["spec", "rolloutStrategy", "maxFailures"], flags.max_failures.as_ref().map(|value| json!(value))),
    ];
    changes.extend(fields.into_iter().filter_map(|(path, value)| Some(Change::set(path, value?))));
    changes
}

/// Stop, or go on.
pub fn pausing(paused: bool) -> Change {
    Change::set(&["spec", "rolloutStrategy", "paused"], paused)
}

/// What makes a spec ask for these inputs, whatever it asks for now.
pub fn restoring(inputs: &Inputs) -> Result<Vec<Change>, Failure> {
    const PATHS: [&[&str]; 7] = [
        &["spec", "version"],
        &["spec", "fetchStrategy", "anonHttp"],
        &["spec", "fetchStrategy", "platforms"],
        &["spec", "fetchStrategy", "image"],
        &["spec", "fetchStrategy", "secretName"],
        &["spec", "binary"],
        &["spec", "containerdRuntimeOptions"],
    ];
    let wanted = json!({"spec": serde_json::to_value(inputs).map_err(Failure::error)?});
    let value = |path: &[&str]| path.iter().try_fold(&wanted, |at, key| at.get(key)).cloned();
    Ok(PATHS.into_iter().map(|path| Change { path, value: value(path) }).collect())
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

/// Writes down who asks for the change, as the API server told it; what stood there before spoke of an earlier one.
pub fn sign(body: &mut Value, user: Option<&str>) {
    match (user, body.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut)) {
        (Some(user), _) => body["metadata"]["annotations"][CHANGED_BY_ANNOTATION] = user.into(),
        (None, Some(annotations)) => drop(annotations.remove(CHANGED_BY_ANNOTATION)),
        (None, None) => {}
    }
}

/// Why a field that has to go would stay: an apply only removes what nobody else has set too.
pub fn held_by_others(live: &Shim, changes: &[Change]) -> Option<String> {
    let others = live.managed_fields().iter().filter(|entry| !is_ours(entry));
    let mut held =
        others.filter_map(|entry| Some((entry, changes.iter().find_map(|change| held_of(entry, live, change))?)));
    let (entry, field) = held.next()?;
    let manager = entry.manager.as_deref().unwrap_or_default();
    Some(format!("{field} has to go, and is managed by {manager:?}; change it there"))
}

/// What a manager holds of that which a change takes away: the field, or a key that is not in its new value.
fn held_of(entry: &ManagedFieldsEntry, live: &Shim, change: &Change) -> Option<String> {
    let fields = &entry.fields_v1.as_ref()?.0;
    let held = change.path.iter().try_fold(fields, |fields, key| fields.get(format!("f:{key}")))?;
    let object = serde_json::to_value(live).ok()?;
    let there = change.path.iter().try_fold(&object, |at, key| at.get(key))?;
    let path = change.path.join(".");
    let Some(new) = &change.value else { return Some(path) };
    let keys = held.as_object()?.keys().filter_map(|key| key.strip_prefix("f:"));
    let mut gone =
        keys.filter(|key| there.get(key).is_some() && new.as_object().is_some_and(|new| !new.contains_key(*key)));
    gone.next().map(|key| format!("{path}.{key}"))
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
    #[test]
    fn a_key_that_others_hold_can_not_be_removed() {
        let held = json!([{"manager": "flux", "operation": "Apply", "fieldsV1": {"f:spec": {"f:nodeSelector": {"f:spin": {}}}}}]);
        let change = |map: Value| held_by_others(&live(&held), &[Change::set(&["spec", "nodeSelector"], map)]);
        let text = "spec.nodeSelector.spin has to go, and is managed by \"flux\"; change it there";
        assert_eq!(change(json!({"other": "x"})).as_deref(), Some(text));
        assert_eq!(change(json!({"spin": "false", "other": "x"})), None);
    }

    #[test]
    fn going_back_writes_and_removes_what_a_revision_is_made_of() {
        let mut before = live(&json!([]));
        before.spec.binary = Some("containerd-shim-spin-v2".to_owned());
        let inputs: Inputs = serde_json::from_value(json!({
            "version": "v0",
            "fetchStrategy": {"platforms": [{"os": "linux", "arch": "amd64", "location": "https://x/0", "sha256": "00"}]},
            "containerdRuntimeOptions": {"SystemdCgroup": true},
        }))
        .unwrap();
        let after = changed(&before, &restoring(&inputs).unwrap()).unwrap();
        let mut wanted = before.clone();
        inputs.restore(&mut wanted.spec);
        assert_eq!(after.spec, wanted.spec);
        assert_eq!(Inputs::from(&after.spec), inputs);
    }

    #[test]
    fn the_signature_is_that_of_this_change() {
        let mut body = json!({"metadata": {"name": "spin"}});
        sign(&mut body, None);
        assert_eq!(body, json!({"metadata": {"name": "spin"}}));
        sign(&mut body, Some("alice"));
        assert_eq!(body["metadata"]["annotations"], json!({"shim.dev/changed-by": "alice"}));
        sign(&mut body, None);
        assert_eq!(body["metadata"]["annotations"], json!({}));
    }

    #[test]
    fn all_at_once_takes_the_pace_away() {
        let flags = |canary| RolloutFlags { strategy: Some(Strategy::Recreate), canary, ..RolloutFlags::default() };
        let mut before = live(&json!([]));
        before.spec.rollout_strategy =
            Some(serde_json::from_value(json!({"rolling": {"maxUpdate": 1}, "canary": 2, "maxFailures": 3})).unwrap());
        let after = |flags| changed(&before, &pace_changes(&flags)).unwrap();
        assert_eq!(
            serde_json::to_value(after(flags(None)).spec.rollout_strategy).unwrap(),
            json!({"type": "recreate", "maxFailures": 3})
        );
        let both = after(flags(Some(k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::Int(1))));
        assert!(both.validate_cel().unwrap_err().to_string().contains("type recreate takes all nodes at once"));
    }
}
