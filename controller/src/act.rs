//! One write for each action of a plan, guarded so that it can only do what was planned.
use std::{collections::HashSet, mem::discriminant};

use futures::{StreamExt, stream};
use json_patch::{
    AddOperation, Patch as JsonPatch, PatchOperation, RemoveOperation, TestOperation, jsonptr::PointerBuf,
};
use k8s_openapi::api::{apps::v1::ControllerRevision, batch::v1::Job, node::v1::RuntimeClass};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde::Serialize;
use serde_json::{Value, json};
use shim_core::{
    api::{Shim, ShimStatus},
    job::{Settings, job_for},
    limits::WRITE_DEADLINE,
    names::{
        FINALIZER, MANAGER, NodeName, RESULT_ANNOTATION, ROLLOUT_ANNOTATION, START_ANNOTATION, STATE_ANNOTATION,
        ShimName, TASK_ANNOTATION,
    },
    plan::{Action, JobRef, MarkWrite, Plan},
    revision::{Record, RevisionView},
    runtime_class::{self, Owner},
    task::{Op, Task},
    world::{LeanNode, World},
};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::{herald::Herald, lease::Leadership, metrics::Metrics, observe::Observer, telemetry::spans};

/// Writes under way at the same time: few for an API server, and many times what one after the other would come to.
const WRITES_AT_ONCE: usize = 8;

/// Carries out plans.
pub(crate) struct Actor {
    shims: Api<Shim>,
    nodes: Api<LeanNode>,
    classes: Api<RuntimeClass>,
    jobs: Api<Job>,
    revisions: Api<ControllerRevision>,
    herald: Herald,
    settings: Settings,
    leadership: Leadership,
    stop: CancellationToken,
}

/// Why an action was not carried out. The next pass sees what is there and decides again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ActError {
    #[error("{0}")]
    Api(#[from] kube::Error),
    #[error("no answer within {} s", WRITE_DEADLINE.as_secs())]
    Deadline,
    #[error("the Lease has no time left for a write")]
    NotLeading,
    #[error("the controller was asked to end")]
    Ending,
    #[error("{0} is not what was planned for any more")]
    Changed(String),
    #[error("the object can't be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// What a pass has learnt of the nodes that it writes to.
#[derive(Default)]
struct Pass {
    /// Their marks were just written: they are as planned.
    confirmed: HashSet<NodeName>,
    /// A write was refused: nothing that comes later for them may happen.
    given_up: HashSet<NodeName>,
    /// Their RuntimeClass is still there: they must not be released.
    kept: HashSet<ShimName>,
}

impl Actor {
    pub(crate) fn new(client: &Client, settings: Settings, leadership: Leadership, stop: CancellationToken) -> Self {
        Self {
            shims: Api::all(client.clone()),
            nodes: Api::all(client.clone()),
            classes: Api::all(client.clone()),
            jobs: Api::namespaced(client.clone(), &settings.namespace),
            revisions: Api::namespaced(client.clone(), &settings.namespace),
            herald: Herald::new(client),
            settings,
            leadership,
            stop,
        }
    }

    /// Carries out a plan, in its order. Returns whether all of it was.
    pub(crate) async fn act(&self, world: &World, plan: &Plan, observer: &Observer, metrics: &Metrics) -> bool {
        let mut pass = Pass::default();
        let mut complete = true;
        // Neighbours of one kind are about different objects. What needs another write first is of another kind.
        for alike in plan.actions.chunk_by(|a, b| discriminant(a) == discriminant(b)) {
            if let Err(reason) = self.may_write() {
                tracing::warn!("{reason}; the rest of the plan is left");
                return false;
            }
            let writes = alike.iter().map(|action| self.write(world, action, observer, &pass, metrics));
            let written: Vec<_> = stream::iter(writes).buffered(WRITES_AT_ONCE).collect().await;
            for (action, done) in alike.iter().zip(written) {
                complete &= done;
                pass.learn(action, done);
            }
        }
        complete
    }

    fn may_write(&self) -> Result<(), ActError> {
        match () {
            () if self.stop.is_cancelled() => Err(ActError::Ending),
            () if !self.leadership.may_write() => Err(ActError::NotLeading),
            () => Ok(()),
        }
    }

    /// Carries out one action, and tells of it. Returns whether it was done.
    async fn write(&self, world: &World, action: &Action, observer: &Observer, pass: &Pass, metrics: &Metrics) -> bool {
        if self.may_write().is_err() {
            return false;
        }
        let span = spans::begin(verb(action), action);
        let write = self.one(world, action, observer, pass).instrument(span.clone());
        let result = match timeout(WRITE_DEADLINE, write).await {
            Ok(result) => result,
            Err(_) => Err(ActError::Deadline),
        };
        spans::end(&span, &result);
        metrics.acted(verb(action), world, action, &result);
        match &result {
            Ok(()) => {
                tracing::info!(action = verb(action), on = subject(action), "done");
                self.herald.tell(world, action).await;
            }
            Err(error) => {
                self.read_again(action, observer).await;
                tracing::warn!(action = verb(action), on = subject(action), "not done, decided anew: {error}");
            }
        }
        result.is_ok()
    }

    async fn one(&self, world: &World, action: &Action, observer: &Observer, pass: &Pass) -> Result<(), ActError> {
        match action {
            Action::Hold(shim) => self.finalizer(shim, observer, true).await,
            Action::Release(shim) if pass.kept.contains(shim) => Err(ActError::Changed(format!("shim {shim}"))),
            Action::Release(shim) => self.finalizer(shim, observer, false).await,
            Action::Apply(class) => self.apply(class, observer).await,
            Action::Revise(revision) => self.revise(world, revision).await,
            Action::Stamp(shim, number, record) => self.stamp(shim, *number, record).await,
            Action::Forget(shim, number) => self.forget(shim, *number).await,
            Action::Note(job, why) => self.annotate(job, START_ANNOTATION, why).await,
            Action::Record(job, report) => self.annotate(job, RESULT_ANNOTATION, report).await,
            Action::Mark(write) => self.mark(write, observer).await,
            Action::Delete(job) => self.delete_job(job, None).await,
            Action::Withdraw(job, version) => self.delete_job(job, Some(version.clone())).await,
            Action::Create(task) => self.create(world, task, pass).await,
            Action::DeleteRuntimeClass(name, shim) => self.delete_class(name, shim).await,
            Action::Status(shim, status) => self.status(shim, status).await,
        }
    }

    /// Guarded by the resourceVersion: another's finalizer must not get lost.
    async fn finalizer(&self, name: &ShimName, observer: &Observer, wanted: bool) -> Result<(), ActError> {
        let Some(shim) = observer.shim(name.as_str()) else { return Ok(()) };
        let mut finalizers = shim.finalizers().to_vec();
        finalizers.retain(|finalizer| finalizer != FINALIZER);
        finalizers.extend(wanted.then(|| FINALIZER.to_owned()));
        let patch = json!({"metadata": {"resourceVersion": shim.resource_version(), "finalizers": finalizers}});
        gone_is_fine(self.shims.patch(name.as_str(), &PatchParams::default(), &Patch::Merge(patch)).await)
    }

    /// Created where there is none, so that one that appeared meanwhile is never taken over.
    async fn apply(&self, class: &RuntimeClass, observer: &Observer) -> Result<(), ActError> {
        let name = class.name_any();
        if observer.runtime_class(&name).is_none() {
            self.classes.create(&PostParams { field_manager: Some(MANAGER.to_owned()), dry_run: false }, class).await?;
        } else {
            let mut body = serde_json::to_value(class)?;
            body["apiVersion"] = RuntimeClass::api_version(&()).into();
            body["kind"] = RuntimeClass::kind(&()).into();
            self.classes.patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(body)).await?;
        }
        Ok(())
    }

    /// Asked for afresh: the cache may not have one that we made a moment ago, or still have one that is somebody else's now.
    async fn delete_class(&self, name: &str, shim: &ShimName) -> Result<(), ActError> {
        let Some(class) = self.classes.get_opt(name).await? else { return Ok(()) };
        if runtime_class::owner(&class) != Owner::Shim(shim.to_string()) {
            return Ok(());
        }
        gone_is_fine(self.classes.delete(name, &with_uid(class.uid())).await)
    }

    /// A write to a Node without an answer may have been carried out: the next pass must not go by what was before.
    async fn read_again(&self, action: &Action, observer: &Observer) {
        let Action::Mark(write) = action else { return };
        match timeout(WRITE_DEADLINE, self.nodes.get(write.node.as_str())).await {
            Ok(Ok(node)) => observer.wrote(&node),
            Ok(Err(kube::Error::Api(status))) if status.is_not_found() => observer.lost(&write.node),
            Ok(Err(error)) => tracing::warn!(node = %write.node, "can't be read again: {error}"),
            Err(_) => tracing::warn!(node = %write.node, "can't be read again: no answer in time"),
        }
    }

    /// The number is in the name, so that no two leaders can give it twice.
    async fn revise(&self, world: &World, revision: &RevisionView) -> Result<(), ActError> {
        let shim = world.shims.iter().find(|shim| shim.name == revision.shim);
        let uid = shim.map(|shim| shim.uid.clone()).unwrap_or_default();
        let object = revision.object(&uid, &self.settings.namespace)?;
        self.revisions.create(&PostParams { field_manager: Some(MANAGER.to_owned()), dry_run: false }, &object).await?;
        Ok(())
    }

    async fn stamp(&self, shim: &ShimName, number: i64, record: &Record) -> Result<(), ActError> {
        let text = serde_json::to_string(record)?;
        let patch = Patch::Merge(json!({"metadata": {"annotations": {ROLLOUT_ANNOTATION: text}}}));
        let name = RevisionView::object_name(shim, number);
        gone_is_fine(self.revisions.patch(&name, &PatchParams::default(), &patch).await)
    }

    async fn forget(&self, shim: &ShimName, number: i64) -> Result<(), ActError> {
        let name = RevisionView::object_name(shim, number);
        gone_is_fine(self.revisions.delete(&name, &DeleteParams::default()).await)
    }

    async fn annotate(&self, job: &JobRef, key: &str, value: &impl Serialize) -> Result<(), ActError> {
        let text = serde_json::to_string(value)?;
        let patch = json!({"metadata": {"uid": job.uid, "annotations": {key: text}}});
        gone_is_fine(self.jobs.patch(&job.name, &PatchParams::default(), &Patch::Merge(patch)).await)
    }

    async fn mark(&self, write: &MarkWrite, observer: &Observer) -> Result<(), ActError> {
        let patch = Patch::<Value>::Json(mark_patch(write));
        let node = self.nodes.patch(write.node.as_str(), &PatchParams::default(), &patch).await?;
        observer.wrote(&node);
        Ok(())
    }

    async fn delete_job(&self, job: &JobRef, resource_version: Option<String>) -> Result<(), ActError> {
        let parameters = DeleteParams {
            propagation_policy: DeleteParams::background().propagation_policy,
            preconditions: Some(Preconditions { uid: Some(job.uid.clone()), resource_version }),
            ..DeleteParams::default()
        };
        gone_is_fine(self.jobs.delete(&job.name, &parameters).await)
    }

    async fn create(&self, world: &World, task: &Task, pass: &Pass) -> Result<(), ActError> {
        if pass.given_up.contains(&task.node) {
            return Err(ActError::Changed(format!("node {}", task.node)));
        }
        if !pass.confirmed.contains(&task.node) {
            self.confirm(world, task).await?;
        }
        let job = job_for(task, &self.settings)?;
        match self.jobs.create(&PostParams::default(), &job).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => self.is_the_same(&job).await,
            other => other.map(drop).map_err(ActError::from),
        }
    }

    /// The cached Node may have been replaced by another of the same name, and the Job would run there.
    async fn confirm(&self, world: &World, task: &Task) -> Result<(), ActError> {
        let planned = world.nodes.iter().find(|node| node.name == task.node);
        let node = self.nodes.get(task.node.as_str()).await?;
        let same = node.uid().as_ref() == Some(&task.node_uid)
            && planned.is_some_and(|planned| planned.annotation.as_ref() == node.annotations().get(STATE_ANNOTATION));
        if same { Ok(()) } else { Err(ActError::Changed(format!("node {}", task.node))) }
    }

    /// An answer may have got lost: an identical Job that has not ended is the one that we wanted.
    async fn is_the_same(&self, job: &Job) -> Result<(), ActError> {
        let found = self.jobs.get(&job.name_any()).await?;
        let ended =
            found.status.as_ref().is_some_and(|status| status.completion_time.is_some() || status.failed.is_some());
        let same = found.annotations().get(TASK_ANNOTATION) == job.annotations().get(TASK_ANNOTATION);
        if same && !ended && found.metadata.deletion_timestamp.is_none() {
            Ok(())
        } else {
            Err(ActError::Changed(format!("job {}", job.name_any())))
        }
    }

    async fn status(&self, name: &ShimName, status: &ShimStatus) -> Result<(), ActError> {
        let body = json!({"apiVersion": Shim::api_version(&()), "kind": Shim::kind(&()), "status": status});
        let apply = PatchParams::apply(MANAGER).force();
        gone_is_fine(self.shims.patch_status(name.as_str(), &apply, &Patch::Apply(body)).await)
    }
}

impl Pass {
    fn learn(&mut self, action: &Action, done: bool) {
        match action {
            Action::Mark(MarkWrite { node, .. }) if done => drop(self.confirmed.insert(node.clone())),
            Action::Mark(MarkWrite { node, .. }) => drop(self.given_up.insert(node.clone())),
            Action::DeleteRuntimeClass(_, shim) if !done => drop(self.kept.insert(shim.clone())),
            _ => {}
        }
    }
}

fn gone_is_fine<T>(result: Result<T, kube::Error>) -> Result<(), ActError> {
    match result {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        other => other.map(drop).map_err(ActError::from),
    }
}

fn with_uid(uid: Option<String>) -> DeleteParams {
    DeleteParams::default().preconditions(Preconditions { uid, resource_version: None })
}

/// Refused by the API server (422) unless the Node is the planned one and its annotation as the planner saw it.
fn mark_patch(write: &MarkWrite) -> JsonPatch {
    let annotation = PointerBuf::from_tokens(["metadata", "annotations", STATE_ANNOTATION]);
    let test = |path: PointerBuf, value: Value| PatchOperation::Test(TestOperation { path, value });
    let mut patch = vec![test(PointerBuf::from_tokens(["metadata", "uid"]), json!(write.uid))];
    // To the API server a test for null passes where there is nothing.
    patch.push(test(annotation.clone(), json!(write.old)));
    patch.extend(set(&annotation, write.new.as_deref()));
    for (label, value) in &write.labels {
        patch.extend(set(&PointerBuf::from_tokens(["metadata", "labels", label.as_str()]), *value));
    }
    JsonPatch(patch)
}

/// Adding first makes the removal of what is already gone pass.
fn set(path: &PointerBuf, value: Option<&str>) -> Vec<PatchOperation> {
    let add = PatchOperation::Add(AddOperation { path: path.clone(), value: json!(value.unwrap_or_default()) });
    let remove = value.is_none().then(|| PatchOperation::Remove(RemoveOperation { path: path.clone() }));
    std::iter::once(add).chain(remove).collect()
}

fn verb(action: &Action) -> &'static str {
    match action {
        Action::Hold(_) => "hold",
        Action::Apply(_) => "apply-runtimeclass",
        Action::Revise(_) => "revise",
        Action::Stamp(..) => "stamp",
        Action::Forget(..) => "forget",
        Action::Note(..) => "note",
        Action::Record(..) => "record",
        Action::Mark(_) => "mark",
        Action::Delete(_) => "delete-job",
        Action::Withdraw(..) => "withdraw-job",
        Action::Create(_) => "create-job",
        Action::DeleteRuntimeClass(..) => "delete-runtimeclass",
        Action::Release(_) => "release",
        Action::Status(..) => "status",
    }
}

fn subject(action: &Action) -> String {
    match action {
        Action::Hold(shim) | Action::Release(shim) | Action::Status(shim, _) => format!("shim/{shim}"),
        Action::Apply(class) => format!("runtimeclass/{}", class.name_any()),
        Action::DeleteRuntimeClass(name, _) => format!("runtimeclass/{name}"),
        Action::Revise(RevisionView { shim, number, .. })
        | Action::Stamp(shim, number, _)
        | Action::Forget(shim, number) => format!("revision/{shim} {number}"),
        Action::Note(job, _) | Action::Record(job, _) | Action::Delete(job) | Action::Withdraw(job, _) => {
            format!("job/{}", job.name)
        }
        Action::Mark(write) => format!("node/{} {}", write.node, write.new.as_deref().unwrap_or("-")),
        Action::Create(task) => {
            let ops = task.ops.iter().map(|(name, op)| {
                let attempt = task.attempt(name);
                match op {
                    Op::Install(install) => format!("{name}={} (attempt {attempt})", install.build),
                    Op::Check(check) => format!("{name}={} (check)", check.build),
                    Op::Remove => format!("{name}=remove (attempt {attempt})"),
                }
            });
            format!("node/{} {}", task.node, ops.collect::<Vec<_>>().join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        convert::Infallible,
        sync::{Arc, Mutex, PoisonError},
        time::Duration,
    };

    use kube::client::Body;
    use tokio::sync::{Barrier, Notify};

    use super::*;

    /// A request, when it comes and when it is answered.
    type Log = Arc<Mutex<Vec<(http::Method, bool)>>>;

    /// An API server that accepts everything, and answers nothing before as many requests are there as may be.
    fn patient_server() -> (Client, Log) {
        let log = Log::default();
        let (seen, full) = (log.clone(), Arc::new(Barrier::new(WRITES_AT_ONCE)));
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (log, full, method) = (seen.clone(), full.clone(), request.method().clone());
            async move {
                let note = |ended| log.lock().unwrap_or_else(PoisonError::into_inner).push((method.clone(), ended));
                note(false);
                full.wait().await;
                note(true);
                let answer = json!({"kind": "Status", "metadata": {"name": "n", "uid": "u"}});
                Ok::<_, Infallible>(http::Response::new(Body::from(answer.to_string().into_bytes())))
            }
        });
        (Client::new(service, "default"), log)
    }

    async fn act(lease: Duration, actions: Vec<Action>) -> (bool, Vec<(http::Method, bool)>) {
        let (client, log) = patient_server();
        let settings = Settings { namespace: "s".to_owned(), image: String::new(), pull_secrets: Vec::new() };
        let leadership = Leadership::with_time_left(lease);
        let actor = Actor::new(&client, settings, leadership, CancellationToken::new());
        let metrics = Metrics::new();
        let (observer, _) = Observer::start(&client, "s", &Arc::new(Notify::new()), &metrics);
        let done = actor.act(&World::default(), &Plan { actions, wake_at: None }, &observer, &metrics).await;
        let log = log.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (done, log)
    }

    #[tokio::test]
    async fn writes_of_one_kind_go_together_and_the_next_kind_waits_for_all_of_them() {
        let each = 3 * WRITES_AT_ONCE;
        let marks = (0..each).map(|_| Action::Mark(write(None, Some("v1,a=claimed"), None)));
        let job = |number| JobRef { name: format!("j{number}"), uid: "u".to_owned() };
        let actions = marks.chain((0..each).map(|number| Action::Delete(job(number)))).collect();
        let (done, log) = act(Duration::from_secs(60), actions).await;
        assert!(done, "{log:?}");
        let (mut open, mut most) = (0, 0);
        for (_, ended) in &log {
            open = if *ended { open - 1 } else { open + 1 };
            most = most.max(open);
        }
        assert_eq!(most, WRITES_AT_ONCE);
        let methods: Vec<_> = log.iter().map(|(method, _)| method.clone()).collect();
        assert_eq!(methods, [vec![http::Method::PATCH; 2 * each], vec![http::Method::DELETE; 2 * each]].concat());
    }

    #[tokio::test]
    async fn nothing_is_written_when_the_lease_has_no_time_left() {
        let (done, log) = act(WRITE_DEADLINE / 2, vec![Action::Mark(write(None, None, None))]).await;
        assert!(!done && log.is_empty(), "{log:?}");
    }

    fn write(old: Option<&str>, new: Option<&str>, label: Option<&'static str>) -> MarkWrite {
        MarkWrite {
            node: "n".parse().unwrap(),
            uid: "u".to_owned(),
            old: old.map(str::to_owned),
            new: new.map(str::to_owned),
            labels: BTreeMap::from([("shim.dev/a".to_owned(), label)]),
        }
    }

    #[test]
    fn a_mark_is_guarded_by_uid_and_old_annotation() {
        let patch = mark_patch(&write(Some("v1,a=claimed"), Some("v1,a=removing"), Some("removing")));
        let expected = json!([
            {"op": "test", "path": "/metadata/uid", "value": "u"},
            {"op": "test", "path": "/metadata/annotations/shim.dev~1state", "value": "v1,a=claimed"},
            {"op": "add", "path": "/metadata/annotations/shim.dev~1state", "value": "v1,a=removing"},
            {"op": "add", "path": "/metadata/labels/shim.dev~1a", "value": "removing"},
        ]);
        assert_eq!(serde_json::to_value(patch).unwrap(), expected);
    }

    #[test]
    fn what_goes_is_added_first_so_that_its_absence_is_no_error() {
        let patch = serde_json::to_value(mark_patch(&write(Some("v1,a=removing"), None, None))).unwrap();
        let mut node =
            json!({"metadata": {"uid": "u", "annotations": {"shim.dev/state": "v1,a=removing"}, "labels": {}}});
        json_patch::patch(&mut node, &serde_json::from_value::<JsonPatch>(patch).unwrap()).unwrap();
        assert_eq!(node, json!({"metadata": {"uid": "u", "annotations": {}, "labels": {}}}));
    }
}
