//! `init`
use std::time::Duration;

use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::Pod},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, ResourceExt as _, api::ListParams};
use serde_json::Value;
use shim_core::manifests::{self, CONTROLLER, CRD, PART_OF, PART_OF_LABEL, VERSION_LABEL};
use tokio::time::{Instant, sleep};

use super::{
    App,
    image::{self, Running, running},
};
use crate::{
    cli::{InitArgs, values::DryRun},
    cluster::{self, Applied, Cluster, Force, found},
    exit::{Exit, Failure},
    interrupt::Interrupt,
    next::Next,
    output,
    views::one_line,
};

/// Minor versions of Kubernetes 1 that are tested.
const SUPPORTED: std::ops::RangeInclusive<u32> = 33..=37;
/// So long an API server may take to serve a new resource type.
const ESTABLISH: Duration = Duration::from_mins(1);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(500);
/// Silence after which something is said.
const HEARTBEAT: Duration = Duration::from_secs(30);
/// Namespaces of Kubernetes itself: their Pod Security must not be opened.
const RESERVED: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// Applies everything, the CRD first.
pub async fn run(app: &App<'_>, args: &InitArgs) -> Result<Exit, Failure> {
    let namespace = cluster::namespace(app.flags);
    if RESERVED.contains(&namespace.as_str()) {
        return Err(Failure::error(format!(
            "namespace {namespace} belongs to Kubernetes; choose another one with --namespace"
        )));
    }
    if args.change.dry_run == DryRun::Client {
        return print(app, &manifests(args, namespace, None)?, args);
    }
    let cluster = app.cluster().await?;
    check_server(app, &cluster).await?;
    check_crd(&cluster).await?;
    let manifests = manifests(args, namespace, running(&cluster).await?.as_ref())?;
    let mut objects = Vec::new();
    for manifest in manifests {
        objects.push(put(app, &cluster, manifest, args).await?);
    }
    if let Some(format) = args.change.output {
        app.console.print(&output::objects(&objects, format)?)?;
    }
    if args.change.dry_run != DryRun::None {
        return Ok(Exit::Done);
    }
    if !args.wait {
        app.console.next(&[Next::status()]);
        return Ok(Exit::Done);
    }
    wait_available(app, &cluster, args.timeout).await
}

fn manifests(args: &InitArgs, namespace: String, running: Option<&Running>) -> Result<Vec<Value>, Failure> {
    manifests::all(&image::settings(args, namespace, running)?).map_err(Failure::error)
}

fn print(app: &App<'_>, manifests: &[Value], args: &InitArgs) -> Result<Exit, Failure> {
    match args.change.output {
        Some(format) => app.console.print(&output::objects(manifests, format)?)?,
        None => manifests.iter().try_for_each(|object| app.report(object, Applied::Created, DryRun::Client, None))?,
    }
    Ok(Exit::Done)
}

async fn check_server(app: &App<'_>, cluster: &Cluster) -> Result<(), Failure> {
    let info = cluster.client().apiserver_version().await.map_err(|error| cluster.failure(&error))?;
    // Some providers write 33+.
    let minor = info.minor.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or_default();
    if info.major != "1" || !SUPPORTED.contains(&minor) {
        let range = format!("1.{} to 1.{}", SUPPORTED.start(), SUPPORTED.end());
        app.console.warn(&format!(
            "this server is {}; kubectl-shim is tested with Kubernetes {range}",
            one_line(&info.git_version)
        ));
    }
    Ok(())
}

/// Never an older version over a newer one, and never over something of others.
async fn check_crd(cluster: &Cluster) -> Result<(), Failure> {
    let api: Api<CustomResourceDefinition> = Api::all(cluster.client());
    let Some(crd) = found(api.get(CRD).await).map_err(|error| cluster.failure(&error))? else { return Ok(()) };
    verdict(crd.labels().get(VERSION_LABEL).map(String::as_str), env!("CARGO_PKG_VERSION"))
}

/// `theirs`: label of the CRD in the cluster.
fn verdict(theirs: Option<&str>, ours: &str) -> Result<(), Failure> {
    let parse = |text: &str| semver::Version::parse(text.trim_start_matches('v')).ok();
    let Some(version) = theirs.and_then(parse) else {
        return Err(Failure::error(format!(
            "CustomResourceDefinition {CRD} exists and was not made by kubectl-shim; nothing was changed"
        )));
    };
    match parse(ours) {
        Some(ours) if ours >= version => Ok(()),
        _ => Err(Failure::error(format!(
            "the cluster has kubectl-shim v{version}, which is newer than this plugin (v{ours}); upgrade the plugin, \
            nothing was changed"
        ))),
    }
}

async fn put(app: &App<'_>, cluster: &Cluster, mut manifest: Value, args: &InitArgs) -> Result<Value, Failure> {
    if args.change.dry_run == DryRun::None && is_going(cluster, &manifest).await? {
        app.console.note(&format!("waiting until the old {} is gone", cluster::reference(&manifest)));
        cluster.wait_gone(&manifest).await?;
    }
    if manifest["kind"] == "Namespace" {
        respect_namespace(cluster, &mut manifest).await?;
    }
    let force = if args.force_conflicts { Force::Conflicts } else { Force::Never };
    let outcome =
        cluster.apply(&manifest, force, args.change.dry_run).await.map_err(|failure| dry_run_limit(failure, args))?;
    if args.change.output.is_none() {
        app.report(&manifest, outcome.applied, args.change.dry_run, None)?;
    }
    if manifest["kind"] == "CustomResourceDefinition" && args.change.dry_run == DryRun::None {
        wait_established(cluster).await?;
    }
    Ok(outcome.object)
}

/// What lies in a namespace that a dry run did not make can't be checked by the server.
fn dry_run_limit(mut failure: Failure, args: &InitArgs) -> Failure {
    let no_namespace = failure.text.contains("(NotFound): namespaces ");
    if args.change.dry_run == DryRun::Server && no_namespace {
        failure.text += "\nA server dry run needs the namespace to exist; --dry-run=client does not.";
    }
    failure
}

/// A namespace that was there before us gets the labels that the installer needs, and does not become ours:
/// `teardown` would delete it.
async fn respect_namespace(cluster: &Cluster, manifest: &mut Value) -> Result<(), Failure> {
    let Some(live) = cluster.find(manifest).await? else { return Ok(()) };
    if live.labels().get(PART_OF_LABEL).is_some_and(|value| value == PART_OF) {
        return Ok(());
    }
    if let Some(labels) = manifest.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.retain(|key, _| key.starts_with("pod-security.kubernetes.io/"));
    }
    Ok(())
}

/// Nothing can be put into a namespace that is being deleted.
async fn is_going(cluster: &Cluster, manifest: &Value) -> Result<bool, Failure> {
    Ok(cluster.find(manifest).await?.is_some_and(|live| live.metadata.deletion_timestamp.is_some()))
}

async fn wait_established(cluster: &Cluster) -> Result<(), Failure> {
    let api: Api<CustomResourceDefinition> = Api::all(cluster.client());
    let deadline = Instant::now() + ESTABLISH;
    while Instant::now() < deadline {
        let crd = api.get(CRD).await.map_err(|error| cluster.failure(&error))?;
        let conditions = crd.status.and_then(|status| status.conditions).unwrap_or_default();
        if conditions.iter().any(|condition| condition.type_ == "Established" && condition.status == "True") {
            return Ok(());
        }
        sleep(PAUSE).await;
    }
    Err(Failure::error(format!("CustomResourceDefinition {CRD} was not established within {ESTABLISH:?}"))
        .then(Next::kubectl(["describe", "crd", CRD])))
}

async fn wait_available(app: &App<'_>, cluster: &Cluster, timeout: Option<Duration>) -> Result<Exit, Failure> {
    let deadline = timeout.filter(|time| !time.is_zero()).map(|time| Instant::now() + time);
    let mut interrupt =
        Interrupt::listen().map_err(|error| Failure::error(format!("Ctrl-C can't be heard: {error}")))?;
    let mut spoke = Instant::now();
    let pods = || Next::kubectl(["describe", "pods", "--namespace", &cluster.namespace]);
    loop {
        if is_available(cluster).await? {
            app.console.note("the controller is available");
            app.console.next(&[Next::status()]);
            return Ok(Exit::Done);
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            let text = format!(
                "the controller is not available after {:?}: {}",
                timeout.unwrap_or_default(),
                why(cluster).await
            );
            return Err(Failure { exit: Exit::Timeout, ..Failure::error(text) }.then(pods()));
        }
        if spoke.elapsed() >= HEARTBEAT {
            spoke = Instant::now();
            app.console.event_aside(&format!("still waiting for the controller: {}", why(cluster).await));
        }
        tokio::select! {
            () = sleep(PAUSE) => {}
            () = interrupt.heard() => {
                app.console.note("Stopped waiting; the controller goes on starting.");
                app.console.next(&[pods()]);
                return Ok(Exit::Interrupted);
            }
        }
    }
}

/// Whether the Deployment as it is now has only Pods of its newest template, and they work.
async fn is_available(cluster: &Cluster) -> Result<bool, Failure> {
    let api: Api<Deployment> = Api::namespaced(cluster.client(), &cluster.namespace);
    let deployment = api.get(CONTROLLER).await.map_err(|error| cluster.failure(&error))?;
    let status = deployment.status.unwrap_or_default();
    let wanted = deployment.spec.and_then(|spec| spec.replicas).unwrap_or(1);
    let current = status.observed_generation >= deployment.metadata.generation;
    let all = [status.updated_replicas, status.available_replicas, status.replicas]
        .iter()
        .all(|count| *count == Some(wanted));
    Ok(current && all)
}

/// What the controller's Pod waits for, as far as it may be seen.
async fn why(cluster: &Cluster) -> String {
    let api: Api<Pod> = Api::namespaced(cluster.client(), &cluster.namespace);
    let params = ListParams::default().labels(&format!("app.kubernetes.io/name={CONTROLLER}"));
    let pods = api.list(&params).await.map(|list| list.items).unwrap_or_default();
    let reasons: Vec<_> = pods.iter().filter_map(pod_reason).collect();
    if reasons.is_empty() { "its Pod has not started".to_owned() } else { one_line(&reasons.join("; ")) }
}

fn pod_reason(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let waiting = status.container_statuses.iter().flatten().find_map(|status| status.state.as_ref()?.waiting.as_ref());
    let unmet = || {
        status.conditions.iter().flatten().find(|condition| condition.status != "True" && condition.reason.is_some())
    };
    let (reason, message) = match waiting {
        Some(waiting) => (waiting.reason.clone(), waiting.message.clone()),
        None => unmet().map(|condition| (condition.reason.clone(), condition.message.clone()))?,
    };
    Some([reason, message].into_iter().flatten().collect::<Vec<_>>().join(": "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_plugin_never_writes_over_a_newer_one() {
        for (theirs, ours) in [("v0.1.0", "0.1.0"), ("v0.1.0", "0.2.0"), ("0.9.0", "0.10.0"), ("v1.0.0-rc.1", "1.0.0")]
        {
            assert!(verdict(Some(theirs), ours).is_ok(), "{theirs} {ours}");
        }
        for (theirs, ours) in [("v0.2.0", "0.1.0"), ("v0.10.0", "0.9.0"), ("v1.0.0", "1.0.0-rc.1")] {
            let failure = verdict(Some(theirs), ours).unwrap_err();
            assert!(failure.text.contains("upgrade the plugin"), "{failure}");
        }
        for theirs in [None, Some("main"), Some("")] {
            assert!(verdict(theirs, "0.1.0").unwrap_err().text.contains("was not made by kubectl-shim"));
        }
    }
}
