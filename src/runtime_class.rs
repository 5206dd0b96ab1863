//! The RuntimeClass of a Shim.
use std::collections::BTreeMap;

use k8s_openapi::{
    api::node::v1::{RuntimeClass, Scheduling},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::{
    api::RuntimeClassSpec,
    mark::LABEL_READY,
    names::{Handler, MANAGED_BY_LABEL, MANAGER, SHIM_LABEL, ShimName},
};

/// The RuntimeClass that a Shim should have. Its pods go to nodes that are labelled as verified.
///
/// It has no ownerReference: a foreground deletion of the Shim would take it before the nodes are clean.
pub fn runtime_class_for(shim: &ShimName, handler: &Handler, spec: &RuntimeClassSpec) -> RuntimeClass {
    RuntimeClass {
        metadata: ObjectMeta {
            name: Some(spec.name.clone()),
            labels: Some(BTreeMap::from([
                (MANAGED_BY_LABEL.to_owned(), MANAGER.to_owned()),
                (SHIM_LABEL.to_owned(), shim.to_string()),
            ])),
            ..ObjectMeta::default()
        },
        handler: handler.to_string(),
        overhead: spec.overhead.clone(),
        scheduling: Some(Scheduling {
            node_selector: Some(BTreeMap::from([(shim.node_label(), LABEL_READY.to_owned())])),
            tolerations: spec.tolerations.clone(),
        }),
    }
}

/// Whose RuntimeClass it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// We made it for this Shim.
    Shim(String),
    /// It was there before us.
    Foreign,
}

/// Reads the owner from the labels.
pub fn owner(class: &RuntimeClass) -> Owner {
    let label = |key: &str| class.metadata.labels.as_ref().and_then(|labels| labels.get(key)).map(String::as_str);
    match (label(MANAGED_BY_LABEL), label(SHIM_LABEL)) {
        (Some(MANAGER), Some(shim)) => Owner::Shim(shim.to_owned()),
        _ => Owner::Foreign,
    }
}

/// Whether `found` already says what `wanted` says, in the fields that are ours.
pub fn is_current(found: &RuntimeClass, wanted: &RuntimeClass) -> bool {
    found.handler == wanted.handler && found.overhead == wanted.overhead && found.scheduling == wanted.scheduling
}
