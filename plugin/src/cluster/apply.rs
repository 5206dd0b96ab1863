//! Writing: server-side apply and delete for objects of any kind.
use std::time::Duration;

use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams},
    core::{GroupVersionKind, Status},
};
use serde_json::{Value, json};
use shim_core::api::Shim;
use tokio::time::{Instant, sleep};

use super::{Cluster, found, is_not_found};
use crate::{cli::values::DryRun, exit::Failure, spec::FIELD_MANAGER};

/// So long what is deleted may take to go: a namespace takes the longest.
const GONE: Duration = Duration::from_secs(120);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(500);
/// Fields of a conflict that are named; the rest is counted.
const FIELDS: usize = 2;

/// What an apply did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// The object is new.
    Created,
    /// It was changed.
    Configured,
    /// It was so already.
    Unchanged,
}

impl std::fmt::Display for Applied {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Created => "created",
            Self::Configured => "configured",
            Self::Unchanged => "unchanged",
        })
    }
}

/// Whether fields of other managers are taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Force {
    /// No: a conflict is an error.
    Never,
    /// Yes: `--force-conflicts`.
    Conflicts,
}

/// What became of one object.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// What was done.
    pub applied: Applied,
    /// The object as it is now.
    pub object: Value,
}

impl Cluster {
    /// Applies an object. With [`DryRun::Client`] nothing is sent; the caller does not come here.
    pub async fn apply(&self, object: &Value, force: Force, dry_run: DryRun) -> Result<Outcome, Failure> {
        let api = self.api_of(object)?;
        let name = name(object);
        let before = found(api.get(name).await).map_err(|error| self.failure(&error))?;
        let params = PatchParams {
            dry_run: dry_run == DryRun::Server,
            force: force == Force::Conflicts,
            ..PatchParams::apply(FIELD_MANAGER).validation_strict()
        };
        let after = api.patch(name, &params, &Patch::Apply(object)).await;
        let after = after.map_err(|error| conflict(&error, object).unwrap_or_else(|| self.failure(&error)))?;
        let applied = match &before {
            None => Applied::Created,
            Some(before) if content(before) == content(&after) => Applied::Unchanged,
            Some(_) => Applied::Configured,
        };
        Ok(Outcome { applied, object: shown(&after) })
    }

    /// Sets an annotation of a Shim, which is returned as it is then; in a dry run the server keeps nothing.
    pub async fn annotate(&self, shim: &Shim, key: &str, value: &str, dry_run: DryRun) -> Result<Shim, Failure> {
        let params = PatchParams {
            dry_run: dry_run == DryRun::Server,
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        // A Shim that was deleted and made again meanwhile is another one.
        let patch = json!({"metadata": {"uid": shim.uid(), "annotations": {key: value}}});
        let patched = self.shims().patch(&shim.name_any(), &params, &Patch::Merge(patch)).await;
        patched.map_err(|error| self.failure(&error))
    }

    /// The object as it is, if it exists.
    pub async fn find(&self, object: &Value) -> Result<Option<DynamicObject>, Failure> {
        found(self.api_of(object)?.get(name(object)).await).map_err(|error| self.failure(&error))
    }

    /// Deletes an object. `false`: it was gone already.
    pub async fn delete(&self, object: &Value, params: &DeleteParams) -> Result<bool, Failure> {
        match self.api_of(object)?.delete(name(object), params).await {
            Ok(_) => Ok(true),
            Err(error) if is_not_found(&error) => Ok(false),
            Err(error) => Err(self.failure(&error)),
        }
    }

    /// Waits until an object that is deleted is gone: who asks for the next thing would meet what is left of it.
    pub async fn wait_gone(&self, object: &Value) -> Result<(), Failure> {
        let deadline = Instant::now() + GONE;
        while self.find(object).await?.is_some() {
            if Instant::now() >= deadline {
                return Err(Failure::error(format!(
                    "{} is deleted but still there after {} s; something in it does not go",
                    reference(object),
                    GONE.as_secs()
                )));
            }
            sleep(PAUSE).await;
        }
        Ok(())
    }

    fn api_of(&self, object: &Value) -> Result<Api<DynamicObject>, Failure> {
        let word = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let (Some(version), Some(kind)) = (word("/apiVersion"), word("/kind")) else {
            return Err(Failure::error("an object without apiVersion and kind can't be applied"));
        };
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Ok(match word("/metadata/namespace") {
            Some(namespace) => Api::namespaced_with(self.client(), namespace, &resource),
            None => Api::all_with(self.client(), &resource),
        })
    }
}

/// A conflict of field managers, with the other one named.
fn conflict(error: &kube::Error, object: &Value) -> Option<Failure> {
    let kube::Error::Api(status) = error else { return None };
    let (managers, fields) = conflicts(status)?;
    let text = format!(
        "{} is managed by {managers} ({fields}); change it there, or pass --force-conflicts",
        reference(object)
    );
    Some(Failure::error(text))
}

/// Managers and fields of an apply's conflicts.
fn conflicts(status: &Status) -> Option<(String, String)> {
    let causes = &status.details.as_ref()?.causes;
    let ours: Vec<_> = causes.iter().filter(|cause| cause.reason == "FieldManagerConflict").collect();
    // conflict with "flux" using shim.dev/v1alpha1
    let mut managers: Vec<_> = ours.iter().filter_map(|cause| cause.message.split('"').nth(1)).collect();
    managers.dedup();
    let managers: Vec<_> = managers.iter().map(|name| format!("{name:?}")).collect();
    let fields: Vec<_> = ours.iter().map(|cause| cause.field.as_str()).take(FIELDS).collect();
    let more = if ours.len() > FIELDS { format!(" and {} more", ours.len() - FIELDS) } else { String::new() };
    (!ours.is_empty()).then(|| (managers.join(", "), fields.join(", ") + &more))
}

/// The object as kubectl prints it.
fn shown(object: &DynamicObject) -> Value {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    value
}

/// The object without what changes although nothing was changed by us.
fn content(object: &DynamicObject) -> Value {
    let mut value = shown(object);
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
    }
    if let Some(object) = value.as_object_mut() {
        object.remove("status");
    }
    value
}

fn name(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

/// `deployment.apps/shim-controller`, as kubectl writes it.
pub fn reference(object: &Value) -> String {
    let word = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let group = word("apiVersion").split_once('/').map(|(group, _)| format!(".{group}")).unwrap_or_default();
    format!("{}{group}/{}", word("kind").to_lowercase(), name(object))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_written_as_kubectl_writes_it() {
        let object =
            |version: &str, kind: &str| json!({"apiVersion": version, "kind": kind, "metadata": {"name": "a"}});
        assert_eq!(reference(&object("v1", "Namespace")), "namespace/a");
        assert_eq!(reference(&object("shim.dev/v1alpha1", "Shim")), "shim.shim.dev/a");
    }

    #[test]
    fn a_conflict_names_managers_and_fields() {
        let cause = |manager: &str, field: &str| json!({"reason": "FieldManagerConflict", "field": field, "message": format!("conflict with \"{manager}\" using shim.dev/v1alpha1")});
        let status: Status = serde_json::from_value(json!({
            "code": 409, "reason": "Conflict", "message": "Apply failed with 2 conflicts",
            "details": {"causes": [cause("flux", ".spec.version"), cause("flux", ".spec.binary")]},
        }))
        .unwrap();
        assert_eq!(conflicts(&status), Some(("\"flux\"".to_owned(), ".spec.version, .spec.binary".to_owned())));
        assert_eq!(conflicts(&Status::failure("the object has been modified", "Conflict")), None);
    }
}
