//! The installation is made twice and taken away, and may do no more than it needs.
use anyhow::{Context, Result, ensure};
use shim_e2e::{Packing, ShimManifest};

use crate::support::{ROLLOUT, session};

#[test]
fn init_is_harmless_twice_and_teardown_refuses_while_shims_exist() -> Result<()> {
    let session = session();
    let again = session.shim_ok(&["init", "--image", &session.image])?;
    ensure!(!again.stdout.contains("created") && again.stdout.contains("unchanged"), "{}", again.stdout);
    let artifact = session.artifacts()?.build(1, Packing::TarGz)?;
    session.apply(&ShimManifest::new("wasmi", "v1", &artifact).on("no", "such-node").text())?;
    session.status_says("wasmi", &["NoNodes"], ROLLOUT)?;
    let refused = session.shim(&["teardown", "--yes"])?;
    ensure!(refused.code == 1 && refused.stderr.contains("wasmi"), "{refused:?}");
    session.remove_and_compare(&["wasmi"])?;
    session.shim_ok(&["teardown", "--yes", "--crds"])?;
    ensure!(session.get("crd", "shims.shim.dev")?.is_none(), "the CRD is still there");
    ensure!(session.get("clusterrole", "shim-controller")?.is_none(), "the ClusterRole is still there");
    session.init()
}

#[test]
fn the_pods_of_controller_and_installer_have_no_more_rights_than_they_need() -> Result<()> {
    let session = session();
    let pods = session.list(&["pods", "-n", "shim-system", "-l", "app.kubernetes.io/name=shim-controller"])?;
    let spec = &pods.first().context("no controller")?["spec"];
    let container = &spec["containers"][0]["securityContext"];
    ensure!(spec["securityContext"]["runAsNonRoot"] == true && container["readOnlyRootFilesystem"] == true, "{spec}");
    for (verb, what) in
        [("get", "secrets"), ("create", "pods"), ("update", "nodes"), ("delete", "nodes"), ("create", "jobs.batch")]
    {
        let user = "--as=system:serviceaccount:shim-system:shim-controller";
        let answer = session.cluster.kubectl(&["auth", "can-i", verb, what, user, "-n", "default"]);
        ensure!(answer.is_err(), "the controller may {verb} {what} in other namespaces");
    }
    Ok(())
}
