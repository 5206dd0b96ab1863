//! From Kubernetes objects to what the planner sees.
use std::{borrow::Borrow, collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::{
    api::{apps::v1::ControllerRevision, batch::v1::Job, core::v1::Pod, node::v1::RuntimeClass},
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube::ResourceExt;
use sha2::{Digest as _, Sha256};

use super::{
    Artifact, Artifacts, JobView, LeanNode, Life, NodeView, Rollout, Share, ShimView, Source, SpecView, World, class,
};
use crate::{
    api::{RolloutStrategy, Shim},
    job, limits,
    mark::{self, Mark, Marks},
    names::{
        Build, CHANGED_BY_ANNOTATION, FINALIZER, Handler, MANAGER, MachineId, ORPHAN_ANNOTATION, PLUGIN_MANAGER,
        RETRY_ANNOTATION, STATE_ANNOTATION, ShimName,
    },
    revision::{Inputs, RevisionView},
    task::{OptionValue, Options},
};

/// The Kubernetes objects that a [`World`] is made of.
#[derive(Debug, Clone, Copy)]
pub struct Objects<'a, S = Shim, N = LeanNode, R = RuntimeClass, V = ControllerRevision> {
    /// All Shims.
    pub shims: &'a [S],
    /// Their revisions.
    pub revisions: &'a [V],
    /// All Nodes.
    pub nodes: &'a [N],
    /// Our Jobs.
    pub jobs: &'a [Job],
    /// The Pods of our Jobs.
    pub pods: &'a [Pod],
    /// Why Jobs could not make their Pods, by uid of the Job.
    pub refusals: &'a BTreeMap<String, String>,
    /// All RuntimeClasses.
    pub runtime_classes: &'a [R],
}

impl World {
    /// Reads the objects. What can't be read is left alone: a node without a legal name or uid, a Job without a task.
    pub fn read<S, N, R, V>(now: Timestamp, objects: &Objects<'_, S, N, R, V>) -> Self
    where
        S: Borrow<Shim>,
        N: AsNode,
        R: Borrow<RuntimeClass>,
        V: Borrow<ControllerRevision>,
    {
        let jobs: Vec<_> =
            objects.jobs.iter().filter_map(|job| JobView::read(job, objects.pods, objects.refusals)).collect();
        let shims: Vec<_> = objects.shims.iter().filter_map(|shim| ShimView::read(shim.borrow())).collect();
        let uid_of = |name: &ShimName| shims.iter().find(|shim| shim.name == *name).map(|shim| shim.uid.clone());
        Self {
            now,
            revisions: objects.revisions.iter().filter_map(|r| RevisionView::read(r.borrow(), uid_of)).collect(),
            shims,
            nodes: objects.nodes.iter().filter_map(AsNode::view).collect(),
            occupied: job::occupied(objects.jobs, objects.pods, &jobs),
            jobs,
            runtime_classes: objects.runtime_classes.iter().map(|class| class.borrow().clone()).collect(),
        }
    }
}

/// What a [`NodeView`] can be had from: read now, or kept from before.
pub trait AsNode {
    /// The view; `None`: its name or uid can't be read.
    fn view(&self) -> Option<Arc<NodeView>>;
}

impl AsNode for LeanNode {
    fn view(&self) -> Option<Arc<NodeView>> {
        NodeView::read(self).map(Arc::new)
    }
}

impl AsNode for Arc<NodeView> {
    fn view(&self) -> Option<Arc<NodeView>> {
        Some(self.clone())
    }
}

impl ShimView {
    /// Reads a Shim.
    pub fn read(shim: &Shim) -> Option<Self> {
        let name: ShimName = shim.name_any().parse().ok()?;
        let life = match (shim.annotations().contains_key(ORPHAN_ANNOTATION), &shim.metadata.deletion_timestamp) {
            (true, _) => Life::Orphaned,
            (false, Some(_)) => Life::Deleting,
            (false, None) => Life::Active,
        };
        Some(Self {
            uid: shim.uid().unwrap_or_default(),
            generation: shim.metadata.generation,
            author: author(shim),
            retry: shim.annotations().get(RETRY_ANNOTATION).and_then(|text| text.parse().ok()),
            created: shim.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            life,
            finalizer: shim.finalizers().iter().any(|finalizer| finalizer == FINALIZER),
            spec: SpecView::read(&name, shim),
            status: shim.status.clone().unwrap_or_default(),
            name,
        })
    }
}

/// Who wrote the spec last, of those that are not us.
fn author(shim: &Shim) -> String {
    let entries = shim.metadata.managed_fields.iter().flatten();
    let of_spec = entries.filter(|entry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        entry.subresource.as_deref().unwrap_or_default().is_empty()
            && fields.is_some_and(|fields| fields.get("f:spec").is_some())
    });
    let last = of_spec.filter(|entry| entry.manager.as_deref() != Some(MANAGER)).max_by_key(|entry| entry.time.clone());
    let manager = last.and_then(|entry| entry.manager.clone()).unwrap_or_default();
    match shim.annotations().get(CHANGED_BY_ANNOTATION) {
        Some(user) if manager == PLUGIN_MANAGER => format!("{manager} ({user})"),
        _ => manager,
    }
}

impl SpecView {
    fn read(name: &ShimName, shim: &Shim) -> Result<Self, String> {
        let spec = &shim.spec;
        let assigned = shim.status.as_ref().and_then(|status| status.handler.as_deref());
        let handler = spec.runtime_class.handler.as_deref().or(assigned).unwrap_or(name.as_str());
        let handler: Handler = handler.parse().map_err(|error| format!("{error}"))?;
        class::check(&spec.runtime_class)?;
        let inputs = Inputs::from(spec);
        Ok(Self {
            source: Source::read(&inputs, &handler)?,
            inputs,
            selector: spec.node_selector.clone().unwrap_or_default(),
            tolerations: spec.tolerations.clone().unwrap_or_default(),
            handler,
            rollout: Rollout::read(&spec.rollout_strategy.clone().unwrap_or_default())?,
            history: spec.revision_history_limit.map_or(limits::HISTORY, |limit| limit as usize),
            runtime_class: spec.runtime_class.clone(),
        })
    }
}

impl Rollout {
    fn read(strategy: &RolloutStrategy) -> Result<Self, String> {
        let standard = Self::default();
        let at_once = strategy.kind.as_deref() == Some("recreate");
        let max_update = strategy.rolling.as_ref().and_then(|rolling| rolling.max_update.as_ref());
        let canary = share(strategy.canary.as_ref(), "canary", 0)?.unwrap_or(standard.canary);
        let max_update = share(max_update, "maxUpdate", 1)?.unwrap_or(standard.max_update);
        Ok(Self {
            max_update: if at_once { Share::Percent(100) } else { max_update },
            canary: if at_once { Share::Count(0) } else { canary },
            max_failures: share(strategy.max_failures.as_ref(), "maxFailures", 1)?.unwrap_or(standard.max_failures),
            paused: strategy.paused.unwrap_or_default(),
        })
    }
}

fn share(value: Option<&IntOrString>, field: &str, least: u32) -> Result<Option<Share>, String> {
    value.map(|value| Share::parse(&int_or_percent_text(value), field, least)).transpose()
}

/// A number or a percentage as people write it.
pub fn int_or_percent_text(value: &IntOrString) -> String {
    match value {
        IntOrString::Int(count) => count.to_string(),
        IntOrString::String(text) => text.clone(),
    }
}

impl Source {
    /// Reads the inputs of a spec or revision.
    pub fn read(inputs: &Inputs, handler: &Handler) -> Result<Self, String> {
        let options = inputs.containerd_runtime_options.clone().map(read_options).transpose()?;
        Ok(Self {
            artifacts: Artifacts::read(inputs, handler, options.as_ref())?,
            binary: inputs.binary.clone(),
            options,
        })
    }
}

impl Artifacts {
    fn read(inputs: &Inputs, handler: &Handler, options: Option<&Options>) -> Result<Self, String> {
        let options = serde_json::to_string(&options).map_err(|error| error.to_string())?;
        let binary = inputs.binary.as_deref().unwrap_or_default();
        let artifact = |location: &str, sha256: &str| {
            let build = Build::of_parts([sha256, binary, handler.as_str(), &options]);
            let sha256 = sha256.parse().map_err(|error| format!("{error}"))?;
            Ok::<_, String>(Artifact { location: location.to_owned(), sha256, build })
        };
        match (&inputs.fetch_strategy.anon_http, &inputs.fetch_strategy.platforms) {
            (Some(one), None) => Ok(Self::One(artifact(&one.location, &one.sha256)?)),
            (None, Some(many)) => {
                let entries = many.iter().map(|p| Ok((p.arch.clone(), artifact(&p.location, &p.sha256)?)));
                Ok(Self::ByArch(entries.collect::<Result<_, String>>()?))
            }
            _ => Err("exactly one of anonHttp and platforms must be set".to_owned()),
        }
    }
}

fn read_options(options: BTreeMap<String, serde_json::Value>) -> Result<Options, String> {
    let read = |(key, value): (String, serde_json::Value)| match serde_json::from_value::<OptionValue>(value) {
        Ok(value) => Ok((key, value)),
        Err(_) => Err(format!("containerdRuntimeOptions.{key} is not a TOML value: null is not allowed")),
    };
    options.into_iter().map(read).collect()
}

impl NodeView {
    /// Reads a Node.
    pub fn read(node: &LeanNode) -> Option<Self> {
        let annotation = node.annotations().get(STATE_ANNOTATION).cloned();
        let info = &node.status.node_info;
        let uid = node.uid()?;
        let machine = info.machine_id.parse().ok();
        let mut marks = mark::parse(annotation.as_deref());
        share_machine(machine.as_ref(), marks.as_mut());
        Some(Self {
            name: node.name_any().parse().ok()?,
            place: place(&uid),
            uid,
            machine,
            labels: node.labels().iter().map(|(key, value)| (key.into(), value.into())).collect(),
            taints: node.spec.taints.clone(),
            cordoned: node.spec.unschedulable,
            ready: node.status.conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True"),
            os: (&info.operating_system).into(),
            arch: (&info.architecture).into(),
            runtime: (&info.container_runtime_version).into(),
            handlers: node.status.runtime_handlers.iter().map(|handler| (&handler.name).into()).collect(),
            marks,
            annotation,
        })
    }
}

/// All that names the same machine is one text in memory: a pass compares them.
fn share_machine(machine: Option<&MachineId>, marks: Option<&mut Marks>) {
    for mark in marks.into_iter().flat_map(BTreeMap::values_mut) {
        if let (Mark::Ready(ready), Some(machine)) = (mark, machine)
            && ready.machine == *machine
        {
            ready.machine = machine.clone();
        }
    }
}

/// Where a node stands in every rollout: a hash of its uid, so that the order is the same for all Shims and after a
/// restart, and favours no zone.
pub fn place(uid: &str) -> u64 {
    let digest = Sha256::digest(uid);
    digest[..8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
