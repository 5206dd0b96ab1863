//! Shim documents from files.
use kube::Resource as _;
use serde::Deserialize as _;
use serde_json::Value;
use shim_core::{api::Shim, names::CHANGED_BY_ANNOTATION};

use crate::exit::Failure;

/// One document, as it was written and as it was read.
#[derive(Debug, Clone)]
pub struct Document {
    /// What is applied; without what only the server writes.
    pub raw: Value,
    /// What is checked.
    pub shim: Shim,
    /// The file; none where flags describe it.
    pub source: Option<String>,
}

/// The Shims in a YAML or JSON text. `source` is the file's name for error texts.
pub fn documents(source: &str, text: &str) -> Result<Vec<Document>, Failure> {
    let mut found = Vec::new();
    for part in serde_yaml::Deserializer::from_str(text) {
        let value =
            Value::deserialize(part).map_err(|error| Failure::error(format!("error parsing {source}: {error}")))?;
        match value {
            Value::Null => {}
            Value::Object(mut list) if list.get("kind").is_some_and(|kind| kind == "List" || kind == "ShimList") => {
                let items = list.remove("items").and_then(|items| items.as_array().cloned()).unwrap_or_default();
                found.extend(items.into_iter().map(|item| document(source, item)).collect::<Result<Vec<_>, _>>()?);
            }
            value => found.push(document(source, value)?),
        }
    }
    if found.is_empty() { Err(Failure::error(format!("no objects found in {source}"))) } else { Ok(found) }
}

fn document(source: &str, mut raw: Value) -> Result<Document, Failure> {
    let word = |key: &str| raw.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (version, kind) = (word("apiVersion"), word("kind"));
    if version != Shim::api_version(&()) || kind != Shim::kind(&()) {
        let text = format!(
            "unable to recognize {source:?}: no matches for kind {kind:?} in version {version:?}: \
            only Shims of {} can be installed",
            Shim::api_version(&())
        );
        return Err(Failure::error(text));
    }
    strip(&mut raw);
    let shim: Shim = serde_json::from_value(raw.clone())
        .map_err(|error| Failure::error(format!("error validating {source:?}: {error}")))?;
    if shim.metadata.name.as_deref().unwrap_or_default().is_empty() {
        return Err(Failure::error(format!("error validating {source:?}: metadata.name is missing")));
    }
    let known = serde_json::to_value(&shim).map_err(Failure::error)?;
    match unknown_field(&raw, &known, "") {
        Some(path) => Err(Failure::error(format!("error validating {source:?}: unknown field {path:?}"))),
        None => Ok(Document { raw, shim, source: Some(source.to_owned()) }),
    }
}

/// What the server writes has no place in an apply; a file may come from `kubectl get -o yaml`.
fn strip(raw: &mut Value) {
    if let Some(object) = raw.as_object_mut() {
        object.remove("status");
    }
    if let Some(metadata) = raw.get_mut("metadata").and_then(Value::as_object_mut) {
        for key in ["managedFields", "resourceVersion", "uid", "generation", "creationTimestamp", "finalizers"] {
            metadata.remove(key);
        }
        // It tells who made an earlier change.
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(CHANGED_BY_ANNOTATION);
        }
    }
}

/// The first field that the type does not know: a typing error that would be ignored in silence.
fn unknown_field(raw: &Value, known: &Value, path: &str) -> Option<String> {
    match (raw, known) {
        (Value::Object(raw), Value::Object(known)) => {
            raw.iter().filter(|(_, value)| !value.is_null()).find_map(|(key, value)| {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                match known.get(key) {
                    Some(known) => unknown_field(value, known, &path),
                    None => Some(path),
                }
            })
        }
        (Value::Array(raw), Value::Array(known)) => {
            let mut pairs = raw.iter().zip(known).enumerate();
            pairs.find_map(|(n, (raw, known))| unknown_field(raw, known, &format!("{path}[{n}]")))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "apiVersion: shim.dev/v1alpha1\nkind: Shim\nmetadata: {name: a, uid: u}\nspec:\n  version: v1\n  \
        fetchStrategy: {anonHttp: {location: https://x/a, sha256: ab}}\n  runtimeClass: {name: a}\n";

    fn error(text: &str) -> String {
        documents("f.yaml", text).unwrap_err().text
    }

    #[test]
    fn reads_several_documents_lists_and_json() {
        let two = format!("---\n{ONE}---\n# nothing\n---\n{}", ONE.replace("name: a", "name: b"));
        let names = |text: &str| {
            documents("-", text).unwrap().iter().map(|d| d.shim.metadata.name.clone().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(names(&two), ["a", "b"]);
        let json = serde_json::to_string(&documents("-", ONE).unwrap()[0].raw).unwrap();
        assert_eq!(names(&json), ["a"]);
        assert_eq!(names(&format!("{{\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": [{json}]}}")), ["a"]);
        assert!(documents("-", ONE).unwrap()[0].raw["metadata"].get("uid").is_none());
    }

    #[test]
    fn says_what_is_wrong_and_where() {
        assert_eq!(error(""), "error: no objects found in f.yaml");
        assert!(error("a: [").starts_with("error: error parsing f.yaml: "));
        assert!(error("kind: Pod\napiVersion: v1").contains("no matches for kind \"Pod\" in version \"v1\""));
        assert!(error(&ONE.replace("sha256: ab", "digest: ab")).contains("missing field `sha256`"));
        assert!(error(&ONE.replace("name: a, uid: u", "uid: u")).contains("metadata.name is missing"));
        assert!(error(&(ONE.to_owned() + "  nodeSelektor: {a: b}\n")).contains("unknown field \"spec.nodeSelektor\""));
    }
}
