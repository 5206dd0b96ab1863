//! Bare Jobs: the same Pods, one for each node, with nobody behind them but Kubernetes.
use std::{
    collections::{BTreeMap, HashSet},
    pin::pin,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use futures::{StreamExt, stream::FuturesUnordered};
use k8s_openapi::{
    api::{batch::v1::Job, core::v1::PodTemplateSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use tokio::time::interval;

use crate::{Controller, Fleet, Progress, Usage, fleet::BARE, node, rollout::Watch, usage::Meter};

/// Jobs that are created at the same time.
const CREATED_AT_ONCE: usize = 32;
/// Jobs that one request deletes.
const DELETED_AT_ONCE: u32 = 250;
/// A Job that never completes is noticed after a while without progress.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Bare Jobs, all complete.
#[derive(Debug, Clone)]
pub struct Bare {
    /// From the first creation until the last was seen complete.
    pub time: Duration,
    /// Until they and their Pods were deleted, after that: ours are deleted as they end.
    pub cleared: Duration,
    /// Complete Jobs over time.
    pub progress: Progress,
    /// What was taken meanwhile; the controller has nothing to do with them.
    pub usage: Usage,
}

/// Runs one Job like `example` on each of the first `count` nodes, `at_a_time` of them unfinished at the same time.
pub async fn bare_jobs(
    fleet: &Fleet,
    controller: &Controller,
    example: &Job,
    count: usize,
    at_a_time: usize,
) -> Result<Bare> {
    let api: Api<Job> = Api::namespaced(fleet.client.clone(), BARE);
    let meter = Meter::start(fleet, controller)?;
    let run = Run::new(&api, example, count, at_a_time);
    let progress = run.complete().await?;
    let time = progress.last().map_or(Duration::ZERO, |last| last.0);
    let usage = meter.read(fleet, controller)?;
    let start = Instant::now();
    clear(fleet, &api).await?;
    Ok(Bare { time, cleared: start.elapsed(), progress, usage })
}

struct Run<'a> {
    api: &'a Api<Job>,
    jobs: Vec<Job>,
    at_a_time: usize,
    done: HashSet<String>,
}

impl<'a> Run<'a> {
    fn new(api: &'a Api<Job>, example: &Job, count: usize, at_a_time: usize) -> Self {
        let jobs = (1..=count).rev().map(|number| job_like(example, number)).collect();
        Self { api, jobs, at_a_time, done: HashSet::new() }
    }

    async fn complete(mut self) -> Result<Progress> {
        let count = self.jobs.len();
        let mut events = pin!(watcher(self.api.clone(), watcher::Config::default()).default_backoff());
        let (mut creations, mut created) = (FuturesUnordered::new(), 0);
        let (mut watch, mut look) = (Watch::new(Instant::now()), interval(LOOK_EVERY));
        while self.done.len() < count {
            while creations.len() < CREATED_AT_ONCE && created - self.done.len() < self.at_a_time {
                let Some(job) = self.jobs.pop() else { break };
                let api = self.api;
                creations.push(create(api, job));
                created += 1;
            }
            tokio::select! {
                Some(creation) = creations.next() => creation?,
                event = events.next() => if let Some(Ok(event)) = event { self.saw(event)? },
                _ = look.tick() => {}
            }
            watch.saw(self.done.len())?;
        }
        Ok(watch.progress)
    }

    fn saw(&mut self, event: Event<Job>) -> Result<()> {
        let (Event::Apply(job) | Event::InitApply(job)) = event else { return Ok(()) };
        if has(&job, "Failed") {
            bail!("bare Job {} failed", job.name_any());
        }
        if has(&job, "Complete") {
            self.done.insert(job.name_any());
        }
        Ok(())
    }
}

/// The API server closes connections now and then: what had no answer is asked again.
async fn create(api: &Api<Job>, job: Job) -> kube::Result<()> {
    let mut answer = api.create(&PostParams::default(), &job).await;
    if answer.as_ref().is_err_and(is_broken_off) {
        answer = api.create(&PostParams::default(), &job).await;
    }
    match answer {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        other => other.map(drop),
    }
}

fn is_broken_off(error: &kube::Error) -> bool {
    !matches!(error, kube::Error::Api(_))
}

fn has(job: &Job, kind: &str) -> bool {
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|condition| condition.type_ == kind && condition.status == "True"))
}

/// The example's Pod on another node, without what the API server has put in for the example.
fn job_like(example: &Job, number: usize) -> Job {
    let mut spec = example.spec.clone().unwrap_or_default();
    let mut pod = spec.template.spec.take().unwrap_or_default();
    pod.node_name = Some(node::name(number));
    (spec.selector, spec.manual_selector) = (None, None);
    let labels = Some(BTreeMap::from([("app".to_owned(), "bare".to_owned())]));
    spec.template = PodTemplateSpec {
        metadata: Some(ObjectMeta { labels: labels.clone(), ..ObjectMeta::default() }),
        spec: Some(pod),
    };
    Job {
        metadata: ObjectMeta { name: Some(format!("bare-{number:05}")), labels, ..ObjectMeta::default() },
        spec: Some(spec),
        status: None,
    }
}

/// Page by page: a request that deletes thousands is cut off before it has an answer.
async fn clear(fleet: &Fleet, api: &Api<Job>) -> Result<()> {
    let one = ListParams::default().limit(1);
    let page = ListParams::default().limit(DELETED_AT_ONCE);
    while !api.list_metadata(&one).await?.items.is_empty() {
        api.delete_collection(&DeleteParams::background(), &page).await.map(drop).or_else(again_if_broken_off)?;
    }
    fleet.empty(BARE).await
}

fn again_if_broken_off(error: kube::Error) -> kube::Result<()> {
    if is_broken_off(&error) { Ok(()) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_job_keeps_the_pod_and_nothing_of_its_example() {
        let example: Job = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "shim-a", "uid": "u", "annotations": {"shim.dev/task": "{}"}, "labels": {"app.kubernetes.io/managed-by": "shim-controller"}},
            "spec": {
                "backoffLimit": 0,
                "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}},
                "template": {
                    "metadata": {"labels": {"batch.kubernetes.io/controller-uid": "u"}},
                    "spec": {"nodeName": "fake-00009", "priorityClassName": "system-node-critical", "containers": [{"name": "install"}]},
                },
            },
        }))
        .unwrap();
        let job = serde_json::to_value(job_like(&example, 3)).unwrap();
        assert_eq!(job["spec"]["template"]["spec"]["nodeName"], "fake-00003");
        assert_eq!(job["spec"]["template"]["spec"]["priorityClassName"], "system-node-critical");
        assert_eq!((&job["spec"]["backoffLimit"], &job["metadata"]["name"]), (&0.into(), &"bare-00003".into()));
        let text = job.to_string();
        assert!(!text.contains("shim-a") && !text.contains("controller-uid") && !text.contains("shim.dev"), "{text}");
    }
}
