//! Letting go of a Shim: its nodes stay as they are. Works without a controller.
use kube::{
    ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;
use shim_core::{
    api::Shim,
    names::{FINALIZER, ORPHAN_ANNOTATION},
};

use crate::{
    cluster::{Cluster, is_not_found},
    exit::Failure,
    spec::FIELD_MANAGER,
};

/// Tries of the patch while the controller writes to the same Shim.
const TRIES: usize = 8;

/// Marks the Shim, takes our finalizer off it in the same write, and deletes it.
pub async fn let_go(cluster: &Cluster, name: &str) -> Result<(), Failure> {
    for _ in 0..TRIES {
        let Some(live) = cluster.shim(name).await? else { return Ok(()) };
        match cluster
            .shims()
            .patch(
                name,
                &PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() },
                &patch(&live),
            )
            .await
        {
            Ok(_) => return delete(cluster, name).await,
            Err(error) if is_not_found(&error) => return Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(cluster.failure(&error)),
        }
    }
    Err(Failure::error(format!("shim {name:?} was changed by somebody else again and again; try once more")))
}

/// The whole list of finalizers is replaced, so the patch says which list it has seen.
fn patch(live: &Shim) -> Patch<serde_json::Value> {
    let kept: Vec<_> = live.finalizers().iter().filter(|finalizer| *finalizer != FINALIZER).collect();
    Patch::Merge(json!({"metadata": {
        "resourceVersion": live.metadata.resource_version,
        "annotations": {ORPHAN_ANNOTATION: "true"},
        "finalizers": kept,
    }}))
}

async fn delete(cluster: &Cluster, name: &str) -> Result<(), Failure> {
    match cluster.shims().delete(name, &DeleteParams::default()).await {
        Ok(_) => Ok(()),
        Err(error) if is_not_found(&error) => Ok(()),
        Err(error) => Err(cluster.failure(&error)),
    }
}
