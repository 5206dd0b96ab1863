//! Our runtimes as TOML, and back.
use std::{collections::BTreeMap, fmt::Write as _, mem::discriminant};

use serde::Deserialize;

use super::{
    ConfigError,
    schema::{CriTable, parse},
};
use crate::{
    names::Handler,
    task::{OptionValue, Options, SHIM_DIR},
};

/// One entry of containerd's `runtimes`, as far as we write and compare it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Runtime {
    /// Absolute path of the shim: a name would be looked up once in the daemon's life, a path at every start.
    #[serde(default, alias = "runtimeType")]
    pub runtime_type: String,
    /// Passed to the shim as it is.
    #[serde(default)]
    pub options: Options,
}

impl Runtime {
    /// Whether a daemon that says in JSON that it has `loaded` has loaded this: there 1.0 is 1.
    pub fn is_loaded_as(&self, loaded: &Self) -> bool {
        self.runtime_type == loaded.runtime_type && same_tables(&self.options, &loaded.options)
    }
}

fn same_tables(ours: &Options, theirs: &Options) -> bool {
    ours.len() == theirs.len()
        && ours.iter().all(|(key, ours)| theirs.get(key).is_some_and(|theirs| same(ours, theirs)))
}

fn same(ours: &OptionValue, theirs: &OptionValue) -> bool {
    match (ours, theirs) {
        // Only whole floats are printed as integers, so the texts decide.
        (OptionValue::Float(ours), OptionValue::Integer(theirs)) => ours.to_string() == theirs.to_string(),
        (OptionValue::Array(ours), OptionValue::Array(theirs)) => {
            ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(ours, theirs)| same(ours, theirs))
        }
        (OptionValue::Table(ours), OptionValue::Table(theirs)) => same_tables(ours, theirs),
        _ => ours == theirs,
    }
}

/// The name of an option whose array holds values of different types. containerd 1.x accepts it in its configuration and
/// ends with a panic when the first pod comes.
pub fn mixed_array(options: &Options) -> Option<&str> {
    options.iter().find(|(_, value)| is_mixed(value)).map(|(name, _)| name.as_str())
}

fn is_mixed(value: &OptionValue) -> bool {
    match value {
        OptionValue::Array(values) => {
            let kinds = values.windows(2).any(|pair| discriminant(&pair[0]) != discriminant(&pair[1]));
            kinds || values.iter().any(is_mixed)
        }
        OptionValue::Table(table) => mixed_array(table).is_some(),
        _ => false,
    }
}

/// Runtimes by handler.
pub type Runtimes = BTreeMap<Handler, Runtime>;

/// Runtimes of others, whole.
pub type Others = BTreeMap<String, Options>;

/// The tables that say of `others` what containerd has as its default.
pub fn render_others(others: &Others, table: CriTable) -> String {
    let mut text = String::new();
    for (handler, runtime) in others {
        let _ = writeln!(text, "[{}]", header(table, handler));
        // Empty values are what containerd has anyway, some of them under keys that later releases do not know.
        for (name, value) in runtime.iter().filter(|(_, value)| !is_empty(value)) {
            let _ = writeln!(text, "  {} = {}", key(name), inline(value));
        }
    }
    text
}

/// The tables that add `runtimes` to a file whose runtimes are in `table`.
pub fn render(runtimes: &Runtimes, table: CriTable) -> String {
    let mut text = String::new();
    for (handler, runtime) in runtimes {
        let header = header(table, handler.as_str());
        // Writing to a String cannot fail.
        let _ = write!(text, "[{header}]\n  runtime_type = {}\n", string(&runtime.runtime_type));
        if !runtime.options.is_empty() {
            let _ = writeln!(text, "  [{header}.options]");
        }
        for (name, value) in &runtime.options {
            let _ = writeln!(text, "    {} = {}", key(name), inline(value));
        }
    }
    text
}

/// The runtimes of ours in a file that we wrote.
pub fn read(path: &str, text: &str) -> Result<Runtimes, ConfigError> {
    let wrong = || ConfigError::WrongType { key: "runtimes", expected: "a table of runtimes" };
    let file = parse(path, text)?;
    let found = CriTable::ALL.iter().find_map(|table| runtimes_in(&file, *table));
    let Some(all) = found.map(|value| value.as_table().ok_or_else(wrong)).transpose()? else {
        return Ok(Runtimes::new());
    };
    let mut ours = Runtimes::new();
    for (handler, runtime) in all {
        let runtime: Runtime = runtime.clone().try_into().map_err(|_| wrong())?;
        if runtime.runtime_type.strip_prefix(SHIM_DIR).is_some_and(|rest| rest.starts_with('/')) {
            ours.insert(handler.parse().map_err(|_| wrong())?, runtime);
        }
    }
    Ok(ours)
}

/// `plugins.<table>.containerd.runtimes` of `file`.
pub(super) fn runtimes_in(file: &toml::Table, table: CriTable) -> Option<&toml::Value> {
    file.get("plugins")?.get(table.key())?.get("containerd")?.get("runtimes")
}

fn is_empty(value: &OptionValue) -> bool {
    match value {
        OptionValue::Bool(value) => !value,
        OptionValue::Integer(value) => *value == 0,
        OptionValue::Float(_) => false,
        OptionValue::String(value) => value.is_empty(),
        OptionValue::Array(values) => values.is_empty(),
        OptionValue::Table(table) => table.is_empty(),
    }
}

fn header(table: CriTable, handler: &str) -> String {
    format!("plugins.{}.containerd.runtimes.{}", key(table.key()), key(handler))
}

fn inline(value: &OptionValue) -> String {
    match value {
        OptionValue::Bool(value) => value.to_string(),
        OptionValue::Integer(value) => value.to_string(),
        // {:?} keeps the point of 1.0, without which TOML reads an integer.
        OptionValue::Float(value) => format!("{value:?}"),
        OptionValue::String(value) => string(value),
        OptionValue::Array(values) => format!("[{}]", values.iter().map(inline).collect::<Vec<_>>().join(", ")),
        OptionValue::Table(table) => {
            let entries = table.iter().map(|(name, value)| format!("{} = {}", key(name), inline(value)));
            format!("{{ {} }}", entries.collect::<Vec<_>>().join(", "))
        }
    }
}

fn key(name: &str) -> String {
    let bare = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if bare { name.to_owned() } else { string(name) }
}

/// A string on one line, always: a value must never hold a line that looks like the end of our block.
/// JSON's escapes are TOML's too, but for DEL, which only TOML forbids.
fn string(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007F")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtimes(options: Options) -> Runtimes {
        let runtime = Runtime { runtime_type: "/opt/shim/spin/current/containerd-shim-spin-v1".to_owned(), options };
        Runtimes::from([("spin".parse().unwrap(), runtime)])
    }

    #[test]
    fn a_runtime_without_options_is_two_lines() {
        assert_eq!(
            render(&runtimes(Options::new()), CriTable::CriV1),
            "[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.spin]\n  runtime_type = \
             \"/opt/shim/spin/current/containerd-shim-spin-v1\"\n"
        );
    }

    #[test]
    fn every_kind_of_option_survives_the_trip() {
        let json = r#"{"a": true, "b": -1, "c": 1.0, "d": "line\n# END kubectl-shim\n\u007f\"'\\\u0001é",
            "e": [1, [2.5], {"x": "y"}], "f": {"g h": {}}, "dotted.key": 1e300, "": ""}"#;
        let given = runtimes(serde_json::from_str(json).unwrap());
        for table in CriTable::ALL {
            let text = render(&given, table);
            assert_eq!(read("x", &text).unwrap(), given, "{text}");
            assert!(text.lines().all(|line| !line.starts_with("# END")), "{text}");
        }
    }

    #[test]
    fn what_a_daemon_says_in_json_is_compared_by_value() {
        let options =
            |json: &str| Runtime { runtime_type: "/x".to_owned(), options: serde_json::from_str(json).unwrap() };
        let ours = options(r#"{"a": 1.0, "b": [2.0, {"c": 3}], "d": 0.5}"#);
        assert!(ours.is_loaded_as(&options(r#"{"a": 1, "b": [2, {"c": 3}], "d": 0.5}"#)));
        for other in [
            r#"{"a": 1, "b": [2, {"c": 4}], "d": 0.5}"#,
            r#"{"a": 1, "b": [2], "d": 0.5}"#,
            r#"{"a": 1}"#,
            r#"{"a": 2, "b": [2, {"c": 3}], "d": 0.5}"#,
        ] {
            assert!(!ours.is_loaded_as(&options(other)), "{other}");
        }
        assert!(!ours.is_loaded_as(&Runtime { runtime_type: "/y".to_owned(), ..ours.clone() }));
    }

    #[test]
    fn an_array_of_different_types_is_found_wherever_it_is() {
        let mixed = |json: &str| mixed_array(&serde_json::from_str(json).unwrap()).map(str::to_owned);
        assert_eq!(mixed(r#"{"a": [1, 2], "b": [[1], [2]], "c": [], "d": "x"}"#), None);
        for json in [r#"{"b": [1, 2.5]}"#, r#"{"a": [1], "b": [[1, "x"]]}"#, r#"{"b": {"c": [{}, 1]}}"#] {
            assert_eq!(mixed(json).as_deref(), Some("b"), "{json}");
        }
    }

    #[test]
    fn runtimes_of_others_are_not_taken_for_ours() {
        let others = Others::from([(
            "runc".to_owned(),
            Options::from([
                ("runtime_type".to_owned(), OptionValue::String("io.containerd.runc.v2".to_owned())),
                ("runtime_root".to_owned(), OptionValue::String(String::new())),
                (
                    "options".to_owned(),
                    OptionValue::Table(Options::from([("SystemdCgroup".to_owned(), OptionValue::Bool(true))])),
                ),
            ]),
        )]);
        let ours = runtimes(Options::new());
        let text = render_others(&others, CriTable::GrpcV1) + &render(&ours, CriTable::GrpcV1);
        assert!(
            text.contains("  options = { SystemdCgroup = true }\n  runtime_type = \"io.containerd.runc.v2\"\n"),
            "{text}"
        );
        assert_eq!(read("x", &text).unwrap(), ours);
    }

    #[test]
    fn a_file_without_runtimes_has_none() {
        assert!(read("x", "version = 3").unwrap().is_empty());
    }
}
