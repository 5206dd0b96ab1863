//! `version`
use serde::Serialize;
use shim_core::{manifests::VERSION, names::GROUP};

use super::App;
use crate::{
    cli::{VersionArgs, values::StructFormat},
    cluster::Controller,
    exit::{Exit, Failure},
    next::Next,
    output,
    views::one_line,
};

#[derive(Debug, Default, Serialize)]
struct Versions {
    #[serde(rename = "clientVersion")]
    client: &'static str,
    #[serde(rename = "apiVersion")]
    api: String,
    #[serde(rename = "controllerVersion", skip_serializing_if = "Option::is_none")]
    controller: Option<String>,
    #[serde(rename = "serverVersion", skip_serializing_if = "Option::is_none")]
    server: Option<String>,
}

/// The plugin's first, so that it is known even where the server does not answer.
pub async fn run(app: &App<'_>, args: &VersionArgs) -> Result<Exit, Failure> {
    let mut versions = Versions { client: VERSION, api: format!("{GROUP}/v1alpha1"), ..Versions::default() };
    if args.output.is_none() {
        app.console.line(&format!("Client Version: {VERSION}\nAPI Version: {}", versions.api))?;
    }
    let asked = if args.client { Ok(()) } else { ask(app, &mut versions).await };
    match args.output {
        Some(StructFormat::Json) => app.console.print(&output::json(&versions)?)?,
        Some(StructFormat::Yaml) => app.console.print(&output::yaml(&versions)?)?,
        None => {
            let lines = [("Controller", &versions.controller), ("Server", &versions.server)];
            for (name, version) in lines.iter().filter_map(|(name, version)| Some((name, version.as_ref()?))) {
                app.console.line(&format!("{name} Version: {}", one_line(version)))?;
            }
        }
    }
    asked?;
    compare(app, &versions);
    Ok(Exit::Done)
}

async fn ask(app: &App<'_>, versions: &mut Versions) -> Result<(), Failure> {
    let cluster = app.cluster().await?;
    let server = cluster.client().apiserver_version().await.map_err(|error| cluster.failure(&error))?;
    versions.server = Some(server.git_version);
    let namespace = &cluster.namespace;
    match cluster.controller().await? {
        Controller::Available { version } => {
            versions.controller = Some(version.unwrap_or_else(|| "<unknown>".to_owned()));
        }
        Controller::Unavailable => {
            app.console.warn(&format!("the controller in namespace {namespace} is not running"));
            app.console.next(&[Next::kubectl(["get", "pods", "--namespace", namespace])]);
        }
        Controller::Missing => {
            app.console.warn(&format!("there is no controller in namespace {namespace}"));
            app.console.next(&[Next::init()]);
        }
        Controller::Unknown => app.console.warn(&format!("the controller in namespace {namespace} may not be read")),
    }
    Ok(())
}

fn compare(app: &App<'_>, versions: &Versions) {
    let parse = |text: &str| semver::Version::parse(text.trim_start_matches('v')).ok();
    let controller = versions.controller.as_deref().and_then(parse);
    match (controller, parse(VERSION)) {
        (Some(theirs), Some(ours)) if theirs < ours => {
            app.console.warn(&format!("controller v{theirs} is older than this plugin (v{ours})"));
            app.console.next(&[Next::init()]);
        }
        (Some(theirs), Some(ours)) if theirs > ours => {
            app.console.warn(&format!("controller v{theirs} is newer than this plugin (v{ours}); upgrade the plugin"));
        }
        _ => {}
    }
}
