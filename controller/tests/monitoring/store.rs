//! Objects by path, as an API server keeps them.
use std::collections::BTreeMap;

use json_patch::{Patch, PatchOperation};
use serde_json::{Value, json};

/// A status code and a body.
pub type Answer = (u16, Value);

/// All objects, and which were deleted when.
#[derive(Default)]
pub struct Store {
    objects: BTreeMap<String, Value>,
    deleted: Vec<(u64, String, Value)>,
    /// Goes up with each write.
    pub version: u64,
}

impl Store {
    /// Puts an object at its path.
    pub fn put(&mut self, path: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.objects.insert(path.to_owned(), object.clone());
        object
    }

    /// The object at this path, or the list of those right below it.
    pub fn get(&self, path: &str) -> Answer {
        if let Some(object) = self.objects.get(path) {
            return (200, object.clone());
        }
        let items: Vec<_> = self.below(path).collect();
        if items.is_empty() && !is_collection(path) {
            return missing(path);
        }
        let version = self.version.to_string();
        (200, json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": version}, "items": items}))
    }

    /// Makes an object below this path.
    pub fn create(&mut self, path: &str, mut object: Value) -> Answer {
        let path = format!("{path}/{}", object["metadata"]["name"].as_str().unwrap_or_default());
        if self.objects.contains_key(&path) {
            return failure(409, "AlreadyExists", &path);
        }
        object["metadata"]["uid"] = path.clone().into();
        (201, self.put(&path, object))
    }

    /// Replaces the object at this path.
    pub fn replace(&mut self, path: &str, object: Value) -> Answer {
        if self.objects.contains_key(path) { (200, self.put(path, object)) } else { missing(path) }
    }

    /// Changes the object at this path by a JSON patch, or by merging.
    pub fn patch(&mut self, path: &str, content_type: &str, body: Value) -> Answer {
        let path = path.strip_suffix("/status").unwrap_or(path);
        let Some(mut object) = self.objects.get(path).cloned() else { return missing(path) };
        if content_type.starts_with("application/json-patch") {
            let operations = without_tests_for_nothing(&object, serde_json::from_value(body).unwrap());
            if json_patch::patch(&mut object, &operations).is_err() {
                return failure(422, "Invalid", path);
            }
        } else {
            json_patch::merge(&mut object, &body);
        }
        (200, self.put(path, object))
    }

    /// Takes the object at this path away.
    pub fn delete(&mut self, path: &str) -> Answer {
        let Some(object) = self.objects.remove(path) else { return missing(path) };
        self.version += 1;
        self.deleted.push((self.version, path.to_owned(), object));
        (200, json!({"kind": "Status", "status": "Success"}))
    }

    /// What has changed below a path since a version, as a watch tells it.
    pub fn events(&self, path: &str, since: u64) -> Vec<Value> {
        let newer = |object: &&Value| {
            object["metadata"]["resourceVersion"].as_str().is_some_and(|text| text.parse::<u64>().unwrap() > since)
        };
        let changed = self.below(path).filter(newer).map(|object| json!({"type": "MODIFIED", "object": object}));
        let deleted = self.deleted.iter().filter(|(version, at, _)| *version > since && is_below(at, path));
        let gone = deleted.map(|(version, _, object)| {
            let mut object = object.clone();
            object["metadata"]["resourceVersion"] = version.to_string().into();
            json!({"type": "DELETED", "object": object})
        });
        changed.chain(gone).collect()
    }

    fn below<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a Value> {
        self.objects.iter().filter(move |(at, _)| is_below(at, path)).map(|(_, object)| object)
    }
}

fn is_below(path: &str, collection: &str) -> bool {
    path.strip_prefix(collection).and_then(|rest| rest.strip_prefix('/')).is_some_and(|name| !name.contains('/'))
}

fn is_collection(path: &str) -> bool {
    let kinds = ["/shims", "/nodes", "/runtimeclasses", "/jobs", "/pods", "/controllerrevisions", "/events"];
    kinds.iter().any(|kind| path.ends_with(kind))
}

/// To an API server a test for null passes where there is nothing.
fn without_tests_for_nothing(object: &Value, patch: Patch) -> Patch {
    let is_moot = |operation: &PatchOperation| match operation {
        PatchOperation::Test(test) => test.value.is_null() && object.pointer(test.path.as_str()).is_none(),
        _ => false,
    };
    Patch(patch.0.into_iter().filter(|operation| !is_moot(operation)).collect())
}

fn missing(path: &str) -> Answer {
    failure(404, "NotFound", path)
}

/// A refusal as an API server words it.
pub fn failure(code: u16, reason: &str, path: &str) -> Answer {
    (
        code,
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": path}),
    )
}
