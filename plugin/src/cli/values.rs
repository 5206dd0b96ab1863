//! How the values of flags are read.
use std::time::Duration;

use clap::ValueEnum;
use k8s_openapi::{api::core::v1::Toleration, apimachinery::pkg::util::intstr::IntOrString};
use serde_json::Value;
use shim_core::{api::PlatformArtifact, world::Share};

use crate::connect::{InvalidTimeout, parse_timeout};

/// `--dry-run`
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DryRun {
    /// Do it.
    #[default]
    None,
    /// Send nothing.
    Client,
    /// Have the server check everything and keep nothing.
    Server,
}

/// `-o` of `status`.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatusFormat {
    /// For people.
    #[default]
    Table,
    /// For people with wide terminals.
    Wide,
    /// For programs.
    Json,
    /// For both.
    Yaml,
    /// TYPE/NAME
    Name,
}

/// `-o` of commands that change something.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectFormat {
    /// TYPE/NAME
    Name,
    /// For people and programs.
    Yaml,
    /// For programs.
    Json,
}

/// `-o` of `version`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum StructFormat {
    /// For programs.
    Json,
    /// For people and programs.
    Yaml,
}

/// `--details`
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Details {
    /// Every node.
    Nodes,
}

/// `NAME` or `TYPE/NAME`, as kubectl takes it.
pub fn shim_name(text: &str) -> Result<String, String> {
    match text.split_once('/') {
        None if text.is_empty() => Err("a name is needed".to_owned()),
        None => Ok(text.to_owned()),
        Some(("shim" | "shims" | "shim.shim.dev" | "shims.shim.dev", name)) if !name.is_empty() => Ok(name.to_owned()),
        Some((kind, _)) => Err(format!("{kind} is not a shim: write NAME or shim/NAME")),
    }
}

/// As kubectl reads `--timeout`.
pub fn duration(text: &str) -> Result<Duration, InvalidTimeout> {
    parse_timeout(text)
}

/// As pflag reads it.
pub fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err("use true or false".to_owned()),
    }
}

/// `key=value`
pub fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("it must have the form key=value".to_owned()),
    }
}

/// `os/arch=URL,sha256=HEX`; the digest stands last, because a URL may hold commas.
pub fn platform(text: &str) -> Result<PlatformArtifact, String> {
    let parts = || {
        let (platform, rest) = text.split_once('=')?;
        let (os, arch) = platform.split_once('/')?;
        let (location, sha256) = rest.rsplit_once(",sha256=")?;
        Some([os, arch, location, sha256].map(str::to_owned))
    };
    let [os, arch, location, sha256] = parts().ok_or("it must have the form os/arch=URL,sha256=HEX")?;
    Ok(PlatformArtifact { os, arch, location, sha256 })
}

/// `KEY=VALUE` with a TOML value. A bare word is refused: `tru` must not become a text by accident.
pub fn option(text: &str) -> Result<(String, Value), String> {
    let (key, value) = key_value(text)?;
    let table: Result<toml::Table, _> = toml::from_str(&format!("value = {value}"));
    let parsed = table.ok().filter(|table| table.len() == 1).and_then(|mut table| table.remove("value"));
    let quoted = || format!("{value} is not a TOML value; write a text as '{key}=\"{value}\"'");
    let json = json(parsed.ok_or_else(quoted)?);
    Ok((key, json.ok_or_else(|| format!("{value} has no form in JSON: no dates, nan or inf"))?))
}

fn json(value: toml::Value) -> Option<Value> {
    match value {
        toml::Value::String(text) => Some(text.into()),
        toml::Value::Integer(number) => Some(number.into()),
        toml::Value::Float(number) => serde_json::Number::from_f64(number).map(Value::Number),
        toml::Value::Boolean(on) => Some(on.into()),
        toml::Value::Datetime(_) => None,
        toml::Value::Array(items) => items.into_iter().map(json).collect::<Option<Vec<_>>>().map(Value::Array),
        toml::Value::Table(table) => {
            let entries = table.into_iter().map(|(key, value)| Some((key, json(value)?)));
            entries.collect::<Option<_>>().map(Value::Object)
        }
    }
}

/// `key[=value][:effect]`, as `kubectl taint` writes it.
pub fn toleration(text: &str) -> Result<Toleration, String> {
    let (rest, effect) = match text.split_once(':') {
        Some((rest, effect @ ("NoSchedule" | "PreferNoSchedule" | "NoExecute"))) => (rest, Some(effect.to_owned())),
        Some((_, effect)) => return Err(format!("effect {effect:?} is not NoSchedule, PreferNoSchedule or NoExecute")),
        None => (text, None),
    };
    let (key, value) = match rest.split_once('=') {
        Some((key, value)) => (key, Some(value.to_owned())),
        None => (rest, None),
    };
    if key.is_empty() {
        return Err("it must have the form key[=value][:effect]".to_owned());
    }
    let operator = if value.is_some() { "Equal" } else { "Exists" };
    Ok(Toleration {
        key: Some(key.to_owned()),
        operator: Some(operator.to_owned()),
        value,
        effect,
        toleration_seconds: None,
    })
}

/// A number of at least 1 or a percentage.
pub fn max_update(text: &str) -> Result<IntOrString, String> {
    int_or_percent(Share::parse(text, "maxUpdate", 1)?)
}

/// A number or a percentage.
pub fn canary(text: &str) -> Result<IntOrString, String> {
    int_or_percent(Share::parse(text, "canary", 0)?)
}

/// A number of at least 1 or a percentage.
pub fn max_failures(text: &str) -> Result<IntOrString, String> {
    int_or_percent(Share::parse(text, "maxFailures", 1)?)
}

/// As a spec has it. Errors: a number that it can't hold.
pub fn int_or_percent(share: Share) -> Result<IntOrString, String> {
    match share {
        Share::Count(count) => i32::try_from(count).map(IntOrString::Int).map_err(|_| "it is too large".to_owned()),
        Share::Percent(percent) => Ok(IntOrString::String(format!("{percent}%"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_option_keeps_its_toml_type() {
        for (text, value) in [
            ("A=true", json!(true)),
            ("A=1_000", json!(1000)),
            ("A=0.5", json!(0.5)),
            ("A=\"x=y\"", json!("x=y")),
            ("A=[1, 2]", json!([1, 2])),
            ("A={b = 1}", json!({"b": 1})),
        ] {
            assert_eq!(option(text), Ok(("A".to_owned(), value)), "{text}");
        }
        for text in ["A", "=1", "A=", "A=tru", "A=/run/x", "A=2026-01-01", "A=nan", "A=1\nb = 2"] {
            assert!(option(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_platform_has_four_parts() {
        let parsed = platform("linux/arm64=https://x/a?b=1,2,sha256=ab").unwrap();
        assert_eq!((parsed.os.as_str(), parsed.arch.as_str()), ("linux", "arm64"));
        assert_eq!((parsed.location.as_str(), parsed.sha256.as_str()), ("https://x/a?b=1,2", "ab"));
        for text in ["linux", "linux/arm64", "linux/arm64=https://x/a", "linux=https://x/a,sha256=ab"] {
            assert!(platform(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_toleration_is_written_like_a_taint() {
        let parts = |text| toleration(text).map(|t| (t.key, t.operator, t.value, t.effect));
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(parts("a=b:NoSchedule"), Ok((some("a"), some("Equal"), some("b"), some("NoSchedule"))));
        assert_eq!(parts("a"), Ok((some("a"), some("Exists"), None, None)));
        for text in ["", ":NoSchedule", "a:Never"] {
            assert!(toleration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_name_may_have_its_type_before_it() {
        assert_eq!(shim_name("shim/spin"), Ok("spin".to_owned()));
        assert_eq!(shim_name("spin"), Ok("spin".to_owned()));
        for text in ["", "shim/", "pod/spin"] {
            assert!(shim_name(text).is_err(), "{text}");
        }
    }
}
