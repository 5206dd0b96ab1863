//! Reading.
use std::fmt::Debug;

use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::{ControllerRevision, Deployment},
    authentication::v1::SelfSubjectReview,
    batch::v1::Job,
    core::v1::Pod,
    node::v1::RuntimeClass,
};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{ListParams, PostParams},
};
use serde::de::DeserializeOwned;
use shim_core::{
    api::Shim,
    manifests::{CONTROLLER, VERSION_LABEL},
    names::{MANAGED_BY_LABEL, MANAGER, SHIM_LABEL},
    revision::RevisionView,
    world::LeanNode,
};

use super::{Cluster, allowed, found};
use crate::{
    exit::Failure,
    next::Next,
    views::{Facts, Snapshot},
};

/// Objects in one answer, as kubectl asks for them.
const CHUNK: u32 = 500;

/// How the controller is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Controller {
    /// Its Deployment is available.
    Available {
        /// Of kubectl-shim.
        version: Option<String>,
    },
    /// There is a Deployment, and no Pod of it works.
    Unavailable,
    /// There is none in this namespace.
    Missing,
    /// We may not look.
    Unknown,
}

/// A Pod that uses a runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodUse {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its Node, once it has one.
    pub node: Option<String>,
    /// Its RuntimeClass.
    pub class: String,
}

impl Cluster {
    /// All Shims, and what they are about as far as it may be read.
    pub async fn snapshot(&self) -> Result<Snapshot, Failure> {
        let shims = self.all_shims().await?;
        let facts = self.facts().await.map_err(|error| self.failure(&error))?;
        Ok(Snapshot { now: Timestamp::now(), shims, facts })
    }

    /// Everything or nothing: without Jobs, a node that failed would look as if it waited.
    async fn facts(&self) -> kube::Result<Facts> {
        let ours = format!("{MANAGED_BY_LABEL}={MANAGER}");
        let revisions: Api<ControllerRevision> = Api::namespaced(self.client(), &self.namespace);
        let nodes: Api<LeanNode> = Api::all(self.client());
        let jobs: Api<Job> = Api::namespaced(self.client(), &self.namespace);
        let pods: Api<Pod> = Api::namespaced(self.client(), &self.namespace);
        let classes: Api<RuntimeClass> = Api::all(self.client());
        let (nodes, jobs, pods, classes, revisions) = tokio::join!(
            self.all(&nodes, ""),
            self.all(&jobs, &ours),
            self.all(&pods, &ours),
            self.all(&classes, ""),
            self.all(&revisions, &ours)
        );
        let (nodes, jobs, pods, classes) = (allowed(nodes)?, allowed(jobs)?, allowed(pods)?, allowed(classes)?);
        let revisions = allowed(revisions)?;
        let denied = [
            ("controllerrevisions", revisions.is_none()),
            ("nodes", nodes.is_none()),
            ("jobs", jobs.is_none()),
            ("pods", pods.is_none()),
            ("runtimeclasses", classes.is_none()),
        ];
        Ok(match (revisions, nodes, jobs, pods, classes) {
            (Some(revisions), Some(nodes), Some(jobs), Some(pods), Some(runtime_classes)) => {
                Facts::All { revisions, nodes, jobs, pods, runtime_classes }
            }
            _ => Facts::Denied(denied.into_iter().filter_map(|(kind, denied)| denied.then_some(kind)).collect()),
        })
    }

    /// All Shims.
    pub async fn all_shims(&self) -> Result<Vec<Shim>, Failure> {
        self.all(&self.shims(), "").await.map_err(|error| self.failure(&error))
    }

    /// A Shim, if it exists.
    pub async fn shim(&self, name: &str) -> Result<Option<Shim>, Failure> {
        found(self.shims().get(name).await).map_err(|error| self.failure(&error))
    }

    /// The revisions of a Shim, newest first. Errors: they may not be listed.
    pub async fn revisions(&self, shim: &Shim) -> Result<Vec<RevisionView>, Failure> {
        let api: Api<ControllerRevision> = Api::namespaced(self.client(), &self.namespace);
        let name = shim.name_any();
        let objects = self.all(&api, &format!("{MANAGED_BY_LABEL}={MANAGER},{SHIM_LABEL}={name}")).await;
        let objects = objects.map_err(|error| match &error {
            kube::Error::Api(status) if status.code == 403 => {
                self.failure(&error).then(self.can_list("controllerrevisions"))
            }
            _ => self.failure(&error),
        })?;
        let uid_of = |of: &shim_core::names::ShimName| if of.as_str() == name { shim.uid() } else { None };
        let mut revisions: Vec<_> = objects.iter().filter_map(|object| RevisionView::read(object, uid_of)).collect();
        revisions.sort_by_key(|revision| std::cmp::Reverse(revision.number));
        Ok(revisions)
    }

    /// The question whether we may list what we read of this resource type.
    pub fn can_list(&self, resource: &str) -> Next {
        match resource {
            "nodes" | "runtimeclasses" => Next::kubectl(["auth", "can-i", "list", resource]),
            _ => Next::kubectl(["auth", "can-i", "list", resource, "--namespace", &self.namespace]),
        }
    }

    /// Who we are to the API server; `None`: it does not say.
    pub async fn user(&self) -> Result<Option<String>, Failure> {
        let api: Api<SelfSubjectReview> = Api::all(self.client());
        match api.create(&PostParams::default(), &SelfSubjectReview::default()).await {
            Ok(review) => Ok(review.status.and_then(|status| status.user_info?.username)),
            Err(kube::Error::Api(_)) => Ok(None),
            Err(error) => Err(self.failure(&error)),
        }
    }

    /// How the controller is.
    pub async fn controller(&self) -> Result<Controller, Failure> {
        let api: Api<Deployment> = Api::namespaced(self.client(), &self.namespace);
        let answer = allowed(found(api.get(CONTROLLER).await)).map_err(|error| self.failure(&error))?;
        let Some(answer) = answer else { return Ok(Controller::Unknown) };
        let Some(deployment) = answer else { return Ok(Controller::Missing) };
        let available = deployment.status.as_ref().and_then(|status| status.available_replicas).unwrap_or_default() > 0;
        let version = deployment.labels().get(VERSION_LABEL).cloned();
        Ok(if available { Controller::Available { version } } else { Controller::Unavailable })
    }

    /// Pods that use one of these RuntimeClasses and have not ended; `None`: they may not be listed.
    pub async fn pods_with(&self, classes: &[String]) -> Result<Option<Vec<PodUse>>, Failure> {
        let api: Api<Pod> = Api::all(self.client());
        let pods = allowed(self.all(&api, "").await).map_err(|error| self.failure(&error))?;
        Ok(pods.map(|pods| pods.iter().filter_map(|pod| pod_use(pod, classes)).collect()))
    }

    /// A whole list, chunk by chunk.
    pub(super) async fn all<K>(&self, api: &Api<K>, labels: &str) -> kube::Result<Vec<K>>
    where
        K: Resource + Clone + DeserializeOwned + Debug,
    {
        let mut params = ListParams { limit: Some(CHUNK), ..ListParams::default() };
        params.label_selector = (!labels.is_empty()).then(|| labels.to_owned());
        let mut items = Vec::new();
        loop {
            let list = api.list(&params).await?;
            items.extend(list.items);
            params.continue_token = list.metadata.continue_.filter(|token| !token.is_empty());
            if params.continue_token.is_none() {
                return Ok(items);
            }
        }
    }
}

fn pod_use(pod: &Pod, classes: &[String]) -> Option<PodUse> {
    let spec = pod.spec.as_ref()?;
    let class = spec.runtime_class_name.clone().filter(|class| classes.contains(class))?;
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let ended = matches!(phase, Some("Succeeded" | "Failed"));
    let namespace = pod.namespace().unwrap_or_default();
    (!ended).then(|| PodUse { namespace, name: pod.name_any(), node: spec.node_name.clone(), class })
}
