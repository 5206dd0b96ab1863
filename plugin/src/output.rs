//! Objects as JSON and YAML.
use serde::Serialize;
use serde_json::Value;

use crate::{cli::values::ObjectFormat, cluster::reference, exit::Failure};

/// JSON as kubectl prints it: four blanks, one line feed at the end.
pub fn json<T: Serialize>(value: &T) -> Result<String, Failure> {
    let mut text = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut text, formatter)).map_err(Failure::error)?;
    text.push(b'\n');
    String::from_utf8(text).map_err(Failure::error)
}

/// YAML.
pub fn yaml<T: Serialize>(value: &T) -> Result<String, Failure> {
    serde_yaml::to_string(value).map_err(Failure::error)
}

/// Objects in the format that was asked for: one alone, several as YAML documents or a JSON List.
pub fn objects(objects: &[Value], format: ObjectFormat) -> Result<String, Failure> {
    match (format, objects) {
        (ObjectFormat::Name, _) => Ok(objects.iter().map(|object| reference(object) + "\n").collect()),
        (ObjectFormat::Json, [one]) => json(one),
        (ObjectFormat::Json, _) => json(&serde_json::json!({"apiVersion": "v1", "kind": "List", "items": objects})),
        (ObjectFormat::Yaml, _) => {
            let documents = objects.iter().map(yaml).collect::<Result<Vec<_>, _>>()?;
            Ok(documents.join("---\n"))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn several_objects_are_one_readable_whole() {
        let object = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let both = [object("a"), object("b")];
        let text = |format| objects(&both, format).unwrap();
        assert_eq!(text(ObjectFormat::Name), "namespace/a\nnamespace/b\n");
        assert_eq!(text(ObjectFormat::Yaml).matches("\n---\n").count(), 1);
        let list: Value = serde_json::from_str(&text(ObjectFormat::Json)).unwrap();
        assert_eq!(list["items"].as_array().unwrap().len(), 2);
        assert!(objects(&both[..1], ObjectFormat::Json).unwrap().starts_with("{\n    \"apiVersion\": \"v1\""));
    }
}
