//! A Shim from the flags of `install`.
use shim_core::api::{FetchStrategy, HttpArtifact, Rolling, RolloutStrategy, RuntimeClassSpec, Shim, ShimSpec};

use crate::{
    cli::{ArtifactFlags, InstallArgs},
    exit::Failure,
};

/// The Shim that the flags describe. Errors: no version or no artifact.
pub fn shim_of(name: &str, args: &InstallArgs) -> Result<Shim, Failure> {
    let version =
        args.artifact.version.clone().ok_or_else(|| Failure::usage("required flag(s) \"version\" not set"))?;
    let rollout = &args.rollout;
    let filled = |empty: bool| (!empty).then_some(());
    let spec = ShimSpec {
        version,
        node_selector: filled(rollout.node_selector.is_empty())
            .map(|()| rollout.node_selector.iter().cloned().collect()),
        fetch_strategy: fetch_strategy(&args.artifact)?,
        binary: args.artifact.binary.clone(),
        runtime_class: RuntimeClassSpec {
            name: args.runtime_class.clone().unwrap_or_else(|| name.to_owned()),
            handler: args.handler.clone(),
            overhead: None,
            tolerations: None,
        },
        containerd_runtime_options: filled(rollout.options.is_empty())
            .map(|()| rollout.options.iter().cloned().collect()),
        tolerations: filled(rollout.tolerations.is_empty()).map(|()| rollout.tolerations.clone()),
        rollout_strategy: rollout_strategy(args),
        revision_history_limit: None,
    };
    Ok(Shim::new(name, spec))
}

fn fetch_strategy(flags: &ArtifactFlags) -> Result<FetchStrategy, Failure> {
    match (&flags.url, &flags.sha256) {
        (Some(location), Some(sha256)) => Ok(FetchStrategy {
            anon_http: Some(HttpArtifact { location: location.clone(), sha256: sha256.clone() }),
            ..FetchStrategy::default()
        }),
        _ if !flags.platforms.is_empty() => {
            Ok(FetchStrategy { platforms: Some(flags.platforms.clone()), ..FetchStrategy::default() })
        }
        _ => Err(Failure::usage("an artifact is needed: --url with --sha256, or --platform")),
    }
}

/// Absent where no flag is given: the controller's defaults hold then.
fn rollout_strategy(args: &InstallArgs) -> Option<RolloutStrategy> {
    let flags = &args.rollout;
    let strategy = RolloutStrategy {
        kind: flags.strategy.map(|strategy| strategy.field().to_owned()),
        rolling: flags.max_update.clone().map(|max_update| Rolling { max_update: Some(max_update) }),
        canary: flags.canary.clone(),
        max_failures: flags.max_failures.clone(),
        paused: args.paused.then_some(true),
    };
    (strategy != RolloutStrategy::default()).then_some(strategy)
}

/// The artifact flags as words, for a hint that can be pasted.
pub fn upgrade_flags(flags: &ArtifactFlags) -> Vec<String> {
    let single = [
        ("--version", &flags.version),
        ("--url", &flags.url),
        ("--sha256", &flags.sha256),
        ("--binary", &flags.binary),
    ];
    let single = single.into_iter().filter_map(|(flag, value)| Some([flag.to_owned(), value.clone()?]));
    let platforms = flags
        .platforms
        .iter()
        .map(|p| ["--platform".to_owned(), format!("{}/{}={},sha256={}", p.os, p.arch, p.location, p.sha256)]);
    single.chain(platforms).flatten().collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::{
        cli::{Cli, Command},
        next::Next,
    };

    fn install(words: &str) -> InstallArgs {
        let words = ["kubectl-shim", "install"].into_iter().chain(words.split_whitespace());
        match Cli::try_parse_from(words).unwrap().command {
            Some(Command::Install(args)) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_not_given_is_not_in_the_object() {
        let shim = shim_of("spin", &install("spin --version v1 --url https://x/a --sha256 ab")).unwrap();
        let json = serde_json::to_value(&shim.spec).unwrap();
        let wanted = serde_json::json!({
            "version": "v1",
            "fetchStrategy": {"anonHttp": {"location": "https://x/a", "sha256": "ab"}},
            "runtimeClass": {"name": "spin"},
        });
        assert_eq!(json, wanted);
    }

    #[test]
    fn the_suggested_upgrade_repeats_the_artifact() {
        for words in [
            "spin --version v1 --url https://x/a --sha256 ab --binary b",
            "spin --version v1 --platform linux/amd64=https://x/a,sha256=ab --platform linux/arm64=https://x/b,sha256=cd",
        ] {
            let args = install(words);
            let Next::Shim(next) = Next::upgrade("spin", &upgrade_flags(&args.artifact)) else { panic!() };
            let parsed =
                Cli::try_parse_from(std::iter::once("kubectl-shim").chain(next.iter().map(String::as_str))).unwrap();
            let Some(Command::Upgrade(upgrade)) = parsed.command else { panic!() };
            assert_eq!(upgrade_flags(&upgrade.artifact), upgrade_flags(&args.artifact));
        }
    }
}
