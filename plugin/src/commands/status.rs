//! `status`
use super::{
    App,
    follow::{Follow, Voice, doubt_controller, follow},
    not_found,
};
use crate::{
    cli::{
        StatusArgs,
        goal::Goal,
        values::{Details, StatusFormat},
    },
    cluster::Cluster,
    exit::{Exit, Failure},
    next::Next,
    output,
    spec::TYPE,
    views::{self, Columns, Nodes, Picture, ShimPicture},
};

/// Shows, or follows.
pub async fn run(app: &App<'_>, args: &StatusArgs) -> Result<Exit, Failure> {
    let cluster = app.cluster().await?;
    if args.watch {
        let voice = Voice::Asked(args.output);
        return follow(
            app,
            &cluster,
            Follow { names: args.names.clone(), goal: Goal::Ready, timeout: args.timeout, voice },
        )
        .await;
    }
    let picture = Picture::of(&cluster.snapshot().await?);
    warn_denied(app, &cluster, &picture);
    if let Some(node) = &args.node {
        check_node(&picture, node)?;
    }
    let shims: Vec<_> =
        picture.shims.iter().filter(|shim| args.names.is_empty() || args.names.contains(&shim.name)).collect();
    show(app, args, &picture, &shims)?;
    if matches!(args.output, StatusFormat::Table | StatusFormat::Wide) {
        advise(app, &cluster, &shims).await?;
    }
    let missing: Vec<_> = args.names.iter().filter(|name| picture.shim(name).is_none()).collect();
    for name in &missing {
        app.console.note(&not_found(name).text);
    }
    let failed = shims.iter().any(|shim| shim.status.nodes_failed > 0 || shim.is("Stalled"));
    Ok(match (missing.is_empty(), args.exit_status && failed) {
        (false, _) => Exit::Error,
        (true, true) => Exit::Unhealthy,
        (true, false) => Exit::Done,
    })
}

fn warn_denied(app: &App<'_>, cluster: &Cluster, picture: &Picture) {
    if let Some(first) = picture.denied.first() {
        let denied = picture.denied.join(", ");
        app.console
            .warn(&format!("{denied} may not be listed; what follows is what the controller has written to .status"));
        app.console.next(&[cluster.can_list(first)]);
    }
}

/// The same in every format.
fn check_node(picture: &Picture, name: &str) -> Result<(), Failure> {
    if !picture.denied.is_empty() {
        return Err(Failure::error("nodes can't be shown without the right to list them"));
    }
    if picture.nodes.iter().any(|node| node.name.as_str() == name) {
        return Ok(());
    }
    Err(Failure::worded(format!("Error from server (NotFound): nodes {name:?} not found"))
        .then(Next::kubectl(["get", "nodes"])))
}

fn show(app: &App<'_>, args: &StatusArgs, picture: &Picture, shims: &[&ShimPicture]) -> Result<(), Failure> {
    let columns = match args.output {
        StatusFormat::Table => Columns::Narrow,
        StatusFormat::Wide => Columns::Wide,
        StatusFormat::Json => return app.console.print(&output::json(&views::list(shims, args.node.as_deref()))?),
        StatusFormat::Yaml => return app.console.print(&output::yaml(&views::list(shims, args.node.as_deref()))?),
        StatusFormat::Name => {
            return shims.iter().try_for_each(|shim| app.console.line(&format!("{TYPE}/{}", shim.name)));
        }
    };
    match &args.node {
        Some(node) => {
            let text = views::node(picture, shims, node, &app.console.screen());
            app.console.print(&text.unwrap_or_default())
        }
        None if shims.is_empty() && args.names.is_empty() => {
            app.console.note("No resources found");
            Ok(())
        }
        None => show_shims(app, args, shims, columns),
    }
}

fn show_shims(app: &App<'_>, args: &StatusArgs, shims: &[&ShimPicture], columns: Columns) -> Result<(), Failure> {
    let screen = app.console.screen();
    if args.names.is_empty() && args.details.is_none() {
        return app.console.print(&views::overview(shims, columns, &screen));
    }
    let nodes = if args.details == Some(Details::Nodes) { Nodes::All } else { Nodes::Worst };
    let screens: Vec<_> = shims.iter().map(|shim| views::detail(shim, columns, nodes, &screen)).collect();
    app.console.print(&screens.join("\n"))
}

/// What is wrong and what to do about it, beside.
async fn advise(app: &App<'_>, cluster: &Cluster, shims: &[&ShimPicture]) -> Result<(), Failure> {
    for trouble in views::troubles(shims, &app.console.side_screen()) {
        app.console.note(&format!("\n{}", trouble.text));
        app.console.next(&trouble.next);
    }
    if shims.iter().any(|shim| !shim.is("Ready")) {
        let names: Vec<_> = shims.iter().map(|shim| shim.name.clone()).collect();
        app.console.next(&doubt_controller(app, cluster, &names, &Goal::Ready).await?);
    }
    Ok(())
}
