//! Which image `init` puts into the cluster, and with which pull secrets.
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Container, PodSpec},
};
use kube::{Api, ResourceExt as _};
use shim_core::{
    job::Settings,
    manifests::{CONTROLLER, PART_OF, PART_OF_LABEL, VERSION, VERSION_LABEL},
};

use crate::{
    cli::InitArgs,
    cluster::{Cluster, found},
    exit::Failure,
    views::one_line,
};

/// Fixed when the plugin was built, so that plugin and controller belong together.
const BUILT_IN: Option<&str> = option_env!("SHIM_IMAGE");

/// What the controller in the cluster was put there with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    image: String,
    pull_secrets: Vec<String>,
    version: String,
}

/// The controller in the cluster, if there is one of ours.
pub async fn running(cluster: &Cluster) -> Result<Option<Running>, Failure> {
    let api: Api<Deployment> = Api::namespaced(cluster.client(), &cluster.namespace);
    let live = found(api.get(CONTROLLER).await).map_err(|error| cluster.failure(&error))?;
    Ok(live.as_ref().and_then(Running::read))
}

/// What everything is made with. Errors: no image is known.
pub fn settings(args: &InitArgs, namespace: String, running: Option<&Running>) -> Result<Settings, Failure> {
    let image = match &args.image {
        Some(image) => image.clone(),
        None => choose(BUILT_IN, running)?,
    };
    let live = running.map(|running| running.pull_secrets.clone()).unwrap_or_default();
    let mut pull_secrets = if args.pull_secrets.is_empty() { live } else { args.pull_secrets.clone() };
    // An empty name is how the live ones are taken away.
    pull_secrets.retain(|name| !name.is_empty());
    Ok(Settings { namespace, image, pull_secrets })
}

/// The plugin's own, unless the controller's comes from elsewhere: then somebody has copied it to a mirror.
fn choose(built_in: Option<&str>, running: Option<&Running>) -> Result<String, Failure> {
    let own = |image: &&str| running.is_none_or(|running| repository(&running.image) == repository(image));
    if let Some(image) = built_in.filter(own) {
        return Ok(image.to_owned());
    }
    match running {
        // Under another version's labels it would pass for what it is not.
        Some(running) if running.version == VERSION => Ok(running.image.clone()),
        Some(Running { image, version, .. }) => {
            Err(missing(&one_line(&format!("the controller is {version} with {image}; say which image is {VERSION}"))))
        }
        None => Err(missing("this plugin was built without one, and there is no controller whose image could be kept")),
    }
}

fn missing(why: &str) -> Failure {
    Failure::usage(format!("required flag(s) \"image\" not set: {why}"))
}

/// The reference without tag and digest.
fn repository(image: &str) -> &str {
    let image = image.split_once('@').map_or(image, |(image, _)| image);
    match image.rsplit_once(':') {
        // The colon of a port has a path behind it.
        Some((repository, tag)) if !tag.contains('/') => repository,
        _ => image,
    }
}

impl Running {
    fn read(live: &Deployment) -> Option<Self> {
        let label = |key| live.labels().get(key).cloned().unwrap_or_default();
        let PodSpec { containers, image_pull_secrets, .. } = live.spec.as_ref()?.template.spec.as_ref()?;
        let Container { image, .. } = containers.iter().find(|container| container.name == "controller")?;
        let pull_secrets = image_pull_secrets.iter().flatten().map(|secret| secret.name.clone()).collect();
        let running = Self { image: image.clone()?, pull_secrets, version: label(VERSION_LABEL) };
        (label(PART_OF_LABEL) == PART_OF).then_some(running)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(image: &str, version: &str) -> Running {
        Running { image: image.to_owned(), pull_secrets: Vec::new(), version: version.to_owned() }
    }

    #[test]
    fn the_image_of_the_plugin_is_taken_unless_the_controller_has_one_of_a_mirror() {
        let chosen = |built_in, running: Option<&Running>| choose(built_in, running).unwrap();
        let own = "example.com:5000/shim@sha256:ab";
        assert_eq!(chosen(Some(own), None), own);
        assert_eq!(chosen(Some(own), Some(&with("example.com:5000/shim:v0.0.1", "v0.0.1"))), own);
        assert_eq!(chosen(Some(own), Some(&with("example.com:5000/shim", VERSION))), own);
        let mirror = with("mirror.example/shim:v1@sha256:ab", VERSION);
        assert_eq!(chosen(Some(own), Some(&mirror)), mirror.image);
        assert_eq!(chosen(None, Some(&mirror)), mirror.image);
    }

    #[test]
    fn an_image_of_another_version_is_not_kept() {
        let old = with("mirror.example/shim:v0.0.1", "v0.0.1");
        for built_in in [None, Some("example.com/shim:v1")] {
            let text = format!("with mirror.example/shim:v0.0.1; say which image is {VERSION}");
            assert!(choose(built_in, Some(&old)).unwrap_err().text.ends_with(&text));
        }
    }

    #[test]
    fn a_repository_may_have_a_port() {
        for (image, name) in [("a/b:v1", "a/b"), ("a:5000/b", "a:5000/b"), ("a:5000/b:v1@sha256:ab", "a:5000/b")] {
            assert_eq!(repository(image), name);
        }
    }
}
