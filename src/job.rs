//! The installer Job: what we ask of one node, and how it ended.
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        batch::v1::{Job, JobSpec},
        core::v1::{
            AppArmorProfile, Capabilities, Container, ContainerState, ContainerStatus, EmptyDirVolumeSource, EnvVar,
            EnvVarSource, HostPathVolumeSource, LocalObjectReference, ObjectFieldSelector, Pod, PodSecurityContext,
            PodSpec, PodTemplateSpec, SELinuxOptions, SeccompProfile, SecurityContext, Toleration, Volume, VolumeMount,
        },
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::ResourceExt;

use crate::{
    limits,
    names::{MANAGED_BY_LABEL, MANAGER, NodeName, RESULT_ANNOTATION, START_ANNOTATION, TASK_ANNOTATION, hex},
    report::{self, Failure, Outcome, Reason, Report, Step},
    task::{self, HOST_ROOT, POD_UID_ENV, TASK_ENV, Task, WORK_DIR},
    world::{JobView, Phase},
};
use sha2::{Digest as _, Sha256};

/// Label that the Job controller puts on Pods: the uid of their Job. Its name would not do: the Job that repairs a node is
/// called as the one that installed, whose Pod may still be there.
pub const JOB_UID_LABEL: &str = "batch.kubernetes.io/controller-uid";
/// The container that touches the node and reports.
pub const INSTALL_CONTAINER: &str = "install";
/// The init container that downloads.
pub const FETCH_CONTAINER: &str = "fetch";

/// What the controller was started with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Namespace of the Jobs.
    pub namespace: String,
    /// Image of the installer: the controller's own.
    pub image: String,
    /// Secrets to pull it with.
    pub pull_secrets: Vec<String>,
}

/// How a Job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// When.
    pub at: Timestamp,
    /// What became of each operation.
    pub report: Report,
    /// Whether the report is kept in the Job's annotation; a Pod may vanish.
    pub recorded: bool,
}

/// How far the Pod of an unfinished Job is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// No container has run yet.
    Waiting,
    /// No container has run, for this reason.
    Hindered {
        /// For people.
        why: Failure,
        /// Whether the Job's annotation has it; the Pod may vanish.
        noted: bool,
    },
    /// A container has run: the node may have been touched.
    Begun,
}

/// Name of a task's Job: legal for every Node name, and never the same for two tasks.
pub fn job_name(task: &Task) -> String {
    let mut hash = Sha256::new();
    for text in [task.node_uid.as_str(), task.machine_id.as_str(), &task.serial.to_string()] {
        hash.update(text.len().to_be_bytes());
        hash.update(text);
    }
    hash.update(serde_json::to_vec(&task.ops).unwrap_or_default());
    let node = report::cut(task.node.as_str(), 40).replace('.', "-");
    format!("shim-{}-{}", node.trim_end_matches('-'), &hex(&hash.finalize())[..12])
}

/// The Job for a task.
pub fn job_for(task: &Task, settings: &Settings) -> Result<Job, serde_json::Error> {
    let text = serde_json::to_string(task)?;
    let labels = BTreeMap::from([(MANAGED_BY_LABEL.to_owned(), MANAGER.to_owned())]);
    Ok(Job {
        metadata: ObjectMeta {
            name: Some(job_name(task)),
            namespace: Some(settings.namespace.clone()),
            labels: Some(labels.clone()),
            annotations: Some(BTreeMap::from([(TASK_ANNOTATION.to_owned(), text.clone())])),
            ..ObjectMeta::default()
        },
        spec: Some(JobSpec {
            // A second Pod would repeat a failure at once; the planner decides when to try again.
            backoff_limit: Some(0),
            active_deadline_seconds: Some(limits::JOB_DEADLINE_SECONDS),
            // Without it a successor could start beside a Pod that is still ending.
            pod_replacement_policy: Some("Failed".to_owned()),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta { labels: Some(labels), ..ObjectMeta::default() }),
                spec: Some(pod_spec(task, &text, settings)),
            },
            ..JobSpec::default()
        }),
        status: None,
    })
}

fn pod_spec(task: &Task, text: &str, settings: &Settings) -> PodSpec {
    let secret = |name: &String| LocalObjectReference { name: name.clone() };
    PodSpec {
        node_name: Some(task.node.to_string()),
        restart_policy: Some("Never".to_owned()),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        priority_class_name: Some("system-node-critical".to_owned()),
        termination_grace_period_seconds: Some(limits::TERMINATION_GRACE_SECONDS),
        tolerations: Some(vec![every_taint()]),
        image_pull_secrets: (!settings.pull_secrets.is_empty())
            .then(|| settings.pull_secrets.iter().map(secret).collect()),
        security_context: Some(PodSecurityContext {
            seccomp_profile: Some(seccomp("RuntimeDefault")),
            ..PodSecurityContext::default()
        }),
        init_containers: Some(vec![fetch_container(text, settings)]),
        containers: vec![install_container(text, settings)],
        volumes: Some(vec![
            Volume { name: "work".to_owned(), empty_dir: Some(EmptyDirVolumeSource::default()), ..Volume::default() },
            Volume {
                name: "host".to_owned(),
                host_path: Some(HostPathVolumeSource { path: "/".to_owned(), type_: None }),
                ..Volume::default()
            },
        ]),
        ..PodSpec::default()
    }
}

/// Which nodes are served the planner has decided; a taint that comes later, even that of the restart itself, which takes
/// the node NotReady for a moment, must not evict the installer in the middle.
fn every_taint() -> Toleration {
    Toleration { operator: Some("Exists".to_owned()), ..Toleration::default() }
}

fn container(name: &str, text: &str, settings: &Settings) -> Container {
    Container {
        name: name.to_owned(),
        image: Some(settings.image.clone()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        command: Some(vec!["/usr/bin/shim-installer".to_owned(), name.to_owned()]),
        env: Some(vec![
            EnvVar { name: TASK_ENV.to_owned(), value: Some(text.to_owned()), ..EnvVar::default() },
            EnvVar { name: POD_UID_ENV.to_owned(), value: None, value_from: Some(own_uid()) },
        ]),
        ..Container::default()
    }
}

fn own_uid() -> EnvVarSource {
    let field = ObjectFieldSelector { field_path: "metadata.uid".to_owned(), api_version: None };
    EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() }
}

fn mount(name: &str, path: &str) -> VolumeMount {
    VolumeMount { name: name.to_owned(), mount_path: path.to_owned(), ..VolumeMount::default() }
}

fn fetch_container(text: &str, settings: &Settings) -> Container {
    Container {
        volume_mounts: Some(vec![mount("work", WORK_DIR)]),
        security_context: Some(SecurityContext {
            run_as_user: Some(65532),
            run_as_group: Some(65532),
            run_as_non_root: Some(true),
            privileged: Some(false),
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            capabilities: Some(Capabilities { add: None, drop: Some(vec!["ALL".to_owned()]) }),
            ..SecurityContext::default()
        }),
        ..container(FETCH_CONTAINER, text, settings)
    }
}

/// Root with the capabilities that the work needs, and not privileged: no devices, no module loading, no raw network.
fn install_container(text: &str, settings: &Settings) -> Container {
    let host = VolumeMount { mount_propagation: Some("HostToContainer".to_owned()), ..mount("host", HOST_ROOT) };
    Container {
        volume_mounts: Some(vec![mount("work", WORK_DIR), host]),
        security_context: Some(SecurityContext {
            run_as_user: Some(0),
            run_as_group: Some(0),
            privileged: Some(false),
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".to_owned()]),
                add: Some(INSTALL_CAPABILITIES.iter().map(|name| (*name).to_owned()).collect()),
            }),
            // The default profiles forbid what the installer is for: reading other processes, talking to systemd.
            app_armor_profile: Some(AppArmorProfile { type_: "Unconfined".to_owned(), localhost_profile: None }),
            se_linux_options: Some(SELinuxOptions { type_: Some("spc_t".to_owned()), ..SELinuxOptions::default() }),
            seccomp_profile: Some(seccomp("RuntimeDefault")),
            ..SecurityContext::default()
        }),
        ..container(INSTALL_CONTAINER, text, settings)
    }
}

/// SYS_CHROOT: the node's own binaries in the node's own root. SYS_PTRACE: /proc/PID/exe of containerd. CHOWN, DAC_OVERRIDE
/// and FOWNER: configuration files that do not belong to root.
const INSTALL_CAPABILITIES: [&str; 5] = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SYS_CHROOT", "SYS_PTRACE"];

fn seccomp(kind: &str) -> SeccompProfile {
    SeccompProfile { type_: kind.to_owned(), localhost_profile: None }
}

impl JobView {
    /// Reads a Job of ours, with the Pods of all our Jobs and what refused to make Pods, by uid. `None`: its task can't
    /// be read, see [`occupied`].
    pub fn read(job: &Job, pods: &[Pod], refusals: &BTreeMap<String, String>) -> Option<Self> {
        let task: Task = serde_json::from_str(job.annotations().get(TASK_ANNOTATION)?).ok()?;
        if task.format > task::FORMAT {
            return None;
        }
        let (name, uid) = (job.name_any(), job.uid()?);
        let pod = pods.iter().find(|pod| pod.labels().get(JOB_UID_LABEL) == Some(&uid));
        let phase = phase(job, &task, pod);
        let start = start(job, &phase, pod, refusals.get(&uid).map(String::as_str));
        let created = job.metadata.creation_timestamp.as_ref().map_or(Timestamp::MAX, |time| time.0);
        Some(Self { name, uid, version: job.resource_version().unwrap_or_default(), created, task, phase, start })
    }
}

fn phase(job: &Job, task: &Task, pod: Option<&Pod>) -> Phase {
    let Some(ended) = condition(job, "Complete").or_else(|| condition(job, "Failed")) else {
        // Every Job that fails has this condition for a moment; one whose Pod does not end has it for good.
        let stuck = condition(job, "FailureTarget").is_some() && pod.is_some_and(|pod| !pod_ended(pod));
        return if stuck { Phase::Stuck } else { Phase::Running };
    };
    // A Job under deletion may still have a Pod.
    if job.metadata.deletion_timestamp.is_some() {
        return Phase::Running;
    }
    let kept = job.annotations().get(RESULT_ANNOTATION).and_then(|text| serde_json::from_str(text).ok());
    let recorded = kept.is_some();
    let report = kept.unwrap_or_else(|| report_of(task, pod, || why_no_result(job, pod, &ended.message)));
    Phase::Finished(Finished { at: ended.at, report, recorded })
}

fn start(job: &Job, phase: &Phase, pod: Option<&Pod>, refusal: Option<&str>) -> Start {
    // A node that does not answer says nothing new of its containers.
    if pod.is_some_and(has_begun) && *phase != Phase::Stuck {
        return Start::Begun;
    }
    let why = match pod {
        Some(pod) => hindrance(pod),
        // It has no Pod, and its deadline does not run.
        None if is_suspended(job) => Some(not_started("the Job is suspended")),
        None => refusal.map(not_started),
    };
    match (note(job), why) {
        (Some(why), _) => Start::Hindered { why, noted: true },
        (None, Some(why)) => Start::Hindered { why, noted: false },
        (None, None) if pod.is_some_and(has_begun) => Start::Begun,
        (None, None) => Start::Waiting,
    }
}

fn is_suspended(job: &Job) -> bool {
    job.spec.as_ref().is_some_and(|spec| spec.suspend == Some(true))
}

/// What was written down while the Pod did not start.
fn note(job: &Job) -> Option<Failure> {
    serde_json::from_str(job.annotations().get(START_ANNOTATION)?).ok()
}

fn not_started(message: impl fmt::Display) -> Failure {
    Failure::new(Step::Start, Reason::PodNotStarted, message)
}

fn containers(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.iter();
    status.flat_map(|status| status.init_container_statuses.iter().chain(&status.container_statuses)).flatten()
}

fn has_begun(pod: &Pod) -> bool {
    let ran = |state: &ContainerState| state.running.is_some() || state.terminated.is_some();
    containers(pod).any(|status| [&status.state, &status.last_state].into_iter().flatten().any(ran))
}

/// Why no container has run; `None`: it is only a matter of time.
fn hindrance(pod: &Pod) -> Option<Failure> {
    let status = pod.status.as_ref()?;
    if status.phase.as_deref() == Some("Failed") {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        return Some(not_started(format!("{}: {}", text(&status.reason), text(&status.message))));
    }
    let waiting = containers(pod).filter_map(|status| status.state.as_ref()?.waiting.as_ref());
    waiting
        .filter_map(|waiting| Some((waiting.reason.as_deref()?, waiting.message.as_deref().unwrap_or_default())))
        .find(|(reason, _)| !matches!(*reason, "ContainerCreating" | "PodInitializing"))
        .map(|(reason, message)| not_started(format!("{reason}: {message}")))
}

struct Ended {
    at: Timestamp,
    message: String,
}

fn condition(job: &Job, kind: &str) -> Option<Ended> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    let found = conditions.iter().find(|c| c.type_ == kind && c.status == "True")?;
    let at = found.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    Some(Ended { at, message: found.message.clone().unwrap_or_default() })
}

/// The installer's report, complete: an operation that it does not speak of has failed.
fn report_of(task: &Task, pod: Option<&Pod>, why: impl Fn() -> Failure) -> Report {
    let said = pod.and_then(|pod| terminated(pod, INSTALL_CONTAINER)).unwrap_or_default();
    let mut report: Report = serde_json::from_str(&said).unwrap_or_else(|_| Report {
        format: report::FORMAT,
        outcomes: BTreeMap::new(),
        restarted: false,
        log: String::new(),
    });
    for name in task.ops.keys() {
        report.outcomes.entry(name.clone()).or_insert_with(|| Outcome::Failed(why()));
    }
    report
}

fn why_no_result(job: &Job, pod: Option<&Pod>, why: &str) -> Failure {
    let fetch = pod.and_then(|pod| terminated(pod, FETCH_CONTAINER)).filter(|text| !text.is_empty());
    match (fetch, pod) {
        (Some(text), _) => Failure::new(Step::Fetch, Reason::Internal, text),
        (None, Some(pod)) if !has_begun(pod) => {
            hindrance(pod).or_else(|| note(job)).unwrap_or_else(|| not_started(why))
        }
        (None, Some(_)) => no_result(why),
        // With a Pod that has gone goes what it said; why it did not start was written down before.
        (None, None) => note(job).unwrap_or_else(|| no_result(why)),
    }
}

fn no_result(why: &str) -> Failure {
    Failure::new(Step::Start, Reason::NoResult, format!("the installer left no result: {why}"))
}

fn terminated(pod: &Pod, container: &str) -> Option<String> {
    let found = containers(pod).filter(|status| status.name == container).find_map(|status| status.state.as_ref())?;
    let ContainerState { terminated: Some(ended), .. } = found else { return None };
    ended.message.clone()
}

/// Nodes where something of ours runs that no Job in `read` explains: a Pod whose Job was deleted under it, a Job
/// whose task is newer than we are.
pub fn occupied(jobs: &[Job], pods: &[Pod], read: &[JobView]) -> BTreeSet<NodeName> {
    let known: BTreeSet<_> = read.iter().map(|job| job.uid.as_str()).collect();
    let unread = jobs.iter().filter(|job| !job.metadata.uid.as_deref().is_some_and(|uid| known.contains(uid)));
    let of_jobs = unread.filter_map(|job| job.spec.as_ref()?.template.spec.as_ref()?.node_name.clone());
    let stray = pods
        .iter()
        .filter(|pod| !pod_ended(pod))
        .filter(|pod| !pod.labels().get(JOB_UID_LABEL).is_some_and(|uid| known.contains(uid.as_str())));
    let of_pods = stray.filter_map(|pod| pod.spec.as_ref()?.node_name.clone());
    of_jobs.chain(of_pods).filter_map(|name| name.parse().ok()).collect()
}

fn pod_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A Job whose one Pod is in this phase, and which has this condition.
    fn read(condition: &str, pod: &str) -> Phase {
        let task = json!({"format": 1, "node": "n", "nodeUid": "u", "machineId": "m", "serial": 1, "ops": {}});
        let job = json!({
            "metadata": {"name": "j", "uid": "j", "annotations": {TASK_ANNOTATION: task.to_string()}},
            "status": {"conditions": [{"type": condition, "status": "True"}]},
        });
        let pod = json!({"metadata": {"labels": {JOB_UID_LABEL: "j"}}, "status": {"phase": pod}});
        let pods = [serde_json::from_value(pod).unwrap()];
        JobView::read(&serde_json::from_value(job).unwrap(), &pods, &BTreeMap::new()).unwrap().phase
    }

    fn job(uid: &str, suspend: bool) -> Job {
        let task = json!({"format": 1, "node": "n", "nodeUid": "u", "machineId": "m", "serial": 1, "ops": {}});
        let job = json!({
            "metadata": {"name": "j", "uid": uid, "annotations": {TASK_ANNOTATION: task.to_string()}},
            "spec": {"suspend": suspend, "template": {}},
        });
        serde_json::from_value(job).unwrap()
    }

    #[test]
    fn a_pod_of_an_earlier_job_of_the_same_name_is_a_stray() {
        let old = json!({
            "metadata": {"labels": {JOB_UID_LABEL: "old", "batch.kubernetes.io/job-name": "j"}},
            "spec": {"nodeName": "n", "containers": []},
            "status": {"containerStatuses": [{"name": INSTALL_CONTAINER, "state": {"running": {}}, "image": "",
                "imageID": "", "ready": true, "restartCount": 0}]},
        });
        let (job, pods) = (job("new", false), [serde_json::from_value(old).unwrap()]);
        let view = JobView::read(&job, &pods, &BTreeMap::new()).unwrap();
        assert_eq!(view.start, Start::Waiting);
        assert_eq!(occupied(&[job], &pods, &[view]), BTreeSet::from(["n".parse().unwrap()]));
    }

    #[test]
    fn a_suspended_job_does_not_start_and_says_so() {
        let view = JobView::read(&job("j", true), &[], &BTreeMap::new()).unwrap();
        let Start::Hindered { why, noted: false } = view.start else { panic!("{:?}", view.start) };
        assert_eq!((why.reason, why.message.as_str()), (Reason::PodNotStarted, "the Job is suspended"));
    }

    #[test]
    fn a_job_that_is_about_to_fail_is_stuck_only_as_long_as_its_pod_does_not_end() {
        assert_eq!(read("FailureTarget", "Running"), Phase::Stuck);
        assert_eq!(read("FailureTarget", "Failed"), Phase::Running);
        assert!(matches!(read("Failed", "Failed"), Phase::Finished(_)));
    }
}
