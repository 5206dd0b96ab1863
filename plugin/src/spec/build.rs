//! A Shim from the flags of `install`.
use k8s_openapi::api::core::v1::Toleration;
use serde_json::Value;
use shim_core::{
    api::{FetchStrategy, HttpArtifact, PlatformArtifact, Rolling, RolloutStrategy, RuntimeClassSpec, Shim, ShimSpec},
    world::int_or_percent_text,
};

use crate::{
    cli::{ArtifactFlags, InstallArgs, RolloutFlags},
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

/// The flags as words of `upgrade`, for a hint that can be pasted.
pub fn upgrade_flags(artifact: &ArtifactFlags, rollout: &RolloutFlags, paused: Option<bool>) -> Vec<String> {
    let words = artifact_words(artifact).chain(rollout_words(rollout));
    let words = words.flat_map(|(flag, value)| [flag.to_owned(), value]);
    words.chain(paused.map(|paused| format!("--paused={paused}"))).collect()
}

fn artifact_words(flags: &ArtifactFlags) -> impl Iterator<Item = (&'static str, String)> {
    let single = [
        ("--version", &flags.version),
        ("--url", &flags.url),
        ("--sha256", &flags.sha256),
        ("--binary", &flags.binary),
    ];
    let single = single.into_iter().filter_map(|(flag, value)| Some((flag, value.clone()?)));
    let platform = |p: &PlatformArtifact| format!("{}/{}={},sha256={}", p.os, p.arch, p.location, p.sha256);
    single.chain(flags.platforms.iter().map(move |artifact| ("--platform", platform(artifact))))
}

fn rollout_words(flags: &RolloutFlags) -> impl Iterator<Item = (&'static str, String)> {
    let selector = flags.node_selector.iter().map(|(key, value)| ("--node-selector", format!("{key}={value}")));
    let options = flags.options.iter().map(|(key, value)| ("--option", format!("{key}={}", toml(value))));
    let tolerations = flags.tolerations.iter().map(|toleration| ("--toleration", taint(toleration)));
    let single = [
        ("--max-update", flags.max_update.as_ref().map(int_or_percent_text)),
        ("--canary", flags.canary.as_ref().map(int_or_percent_text)),
        ("--max-failures", flags.max_failures.as_ref().map(int_or_percent_text)),
        ("--strategy", flags.strategy.map(|strategy| strategy.field().to_owned())),
    ];
    let single = single.into_iter().filter_map(|(flag, value)| Some((flag, value?)));
    selector.chain(options).chain(tolerations).chain(single)
}

/// As `--option` reads it.
fn toml(value: &Value) -> String {
    let list = |items: Vec<String>| items.join(", ");
    match value {
        Value::Array(items) => format!("[{}]", list(items.iter().map(toml).collect())),
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| format!("{} = {}", Value::from(key.as_str()), toml(value));
            format!("{{{}}}", list(fields.iter().map(field).collect()))
        }
        value => value.to_string(),
    }
}

/// As `--toleration` reads it.
fn taint(toleration: &Toleration) -> String {
    let value = toleration.value.as_ref().map(|value| format!("={value}")).unwrap_or_default();
    let effect = toleration.effect.as_ref().map(|effect| format!(":{effect}")).unwrap_or_default();
    format!("{}{value}{effect}", toleration.key.as_deref().unwrap_or_default())
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
    fn the_suggested_upgrade_repeats_the_flags() {
        for words in [
            "spin --version v1 --url https://x/a --sha256 ab --binary b --node-selector a=b --node-selector c=",
            "spin --version v1 --platform linux/amd64=https://x/a,sha256=ab --platform linux/arm64=https://x/b,sha256=cd",
            "spin --version v1 --url https://x/a --sha256 ab --option A=true --option B=[1,{c=\"d\"}] --option E=0.5",
            "spin --version v1 --url https://x/a --sha256 ab --toleration a --toleration b=c:NoSchedule",
            "spin --version v1 --url https://x/a --sha256 ab --max-update 1 --canary 20% --max-failures 3",
            "spin --version v1 --url https://x/a --sha256 ab --strategy recreate --paused",
        ] {
            let args = install(words);
            let flags = upgrade_flags(&args.artifact, &args.rollout, Some(args.paused));
            let Next::Shim(next) = Next::upgrade("spin", &flags) else { panic!() };
            let parsed =
                Cli::try_parse_from(std::iter::once("kubectl-shim").chain(next.iter().map(String::as_str))).unwrap();
            let Some(Command::Upgrade(upgrade)) = parsed.command else { panic!() };
            let shown = |artifact, rollout, paused| format!("{artifact:?} {rollout:?} {paused:?}");
            let given = shown(&args.artifact, &args.rollout, Some(args.paused));
            assert_eq!(shown(&upgrade.artifact, &upgrade.rollout, upgrade.paused), given);
        }
    }
}
