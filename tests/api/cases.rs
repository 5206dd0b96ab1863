//! Objects that are refused, and the words of the refusal: for the API server and for the offline rules alike.
use serde_json::{Value, json};

/// One refused object.
#[derive(Debug)]
pub struct Case {
    /// What is wrong with it.
    pub what: &'static str,
    /// The object.
    pub object: Value,
    /// Part of the message.
    pub message: &'static str,
}

/// A Shim that is accepted, with every field that is supported.
pub fn good() -> Value {
    json!({
        "apiVersion": "shim.dev/v1alpha1", "kind": "Shim",
        "metadata": {"name": "spin"},
        "spec": {
            "version": "v1",
            "nodeSelector": {"spin": "true"},
            "fetchStrategy": {"anonHttp": {"location": "https://example.org/spin.tar.gz", "sha256": "a".repeat(64)}},
            "binary": "containerd-shim-spin-v2",
            "runtimeClass": {
                "name": "wasmtime-spin", "handler": "spin",
                "overhead": {"podFixed": {"memory": "10Mi"}},
                "tolerations": [{"key": "wasm", "operator": "Exists", "effect": "NoSchedule"}],
            },
            "containerdRuntimeOptions": {"SystemdCgroup": true, "Depth": {"Level": 3, "Names": ["a"]}},
            "tolerations": [{"key": "wasm", "operator": "Exists"}],
            "rolloutStrategy": {"type": "rolling", "rolling": {"maxUpdate": "10%"}, "paused": false},
        }
    })
}

/// The same with an artifact for each platform.
pub fn good_platforms() -> Value {
    let artifact =
        |arch: &str| json!({"os": "linux", "arch": arch, "location": "http://example.org/s", "sha256": "b".repeat(64)});
    changed("/spec/fetchStrategy", json!({"platforms": [artifact("amd64"), artifact("arm64")]}))
}

/// The good object with something else at `pointer`; null takes it away.
pub fn changed(pointer: &str, value: Value) -> Value {
    let mut object = good();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = object.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    match value {
        Value::Null => parent.remove(key),
        value => parent.insert(key.to_owned(), value),
    };
    object
}

fn case(what: &'static str, pointer: &str, value: Value, message: &'static str) -> Case {
    Case { what, object: changed(pointer, value), message }
}

/// Refused by a rule, with the same words offline and online.
pub fn refused_by_rule() -> Vec<Case> {
    let mut cases = names_and_classes();
    cases.extend(fetching());
    cases.extend(rollout());
    cases
}

fn names_and_classes() -> Vec<Case> {
    let class = "/spec/runtimeClass";
    vec![
        case(
            "a long name",
            "/metadata/name",
            json!("x".repeat(41)),
            "metadata.name must be a DNS label of at most 40 characters",
        ),
        case(
            "a name with a dot",
            "/metadata/name",
            json!("a.b"),
            "metadata.name must be a DNS label of at most 40 characters",
        ),
        Case {
            what: "a reserved name as handler",
            object: {
                let mut object = changed("/metadata/name", json!("runc"));
                object.pointer_mut(class).unwrap().as_object_mut().unwrap().remove("handler");
                object
            },
            message: "the names runc and shim-N are reserved",
        },
        case(
            "a reserved handler",
            "/spec/runtimeClass/handler",
            json!("shim-3"),
            "the handlers runc and shim-N are reserved",
        ),
        case(
            "a handler in capitals",
            "/spec/runtimeClass/handler",
            json!("Spin"),
            "runtimeClass.handler must be a DNS label",
        ),
        case(
            "a bad RuntimeClass name",
            "/spec/runtimeClass/name",
            json!("Spin_1"),
            "runtimeClass.name must be a DNS subdomain",
        ),
        case(
            "a RuntimeClass name with an empty part",
            "/spec/runtimeClass/name",
            json!("a..b"),
            "runtimeClass.name must be a DNS subdomain",
        ),
        case("an empty version", "/spec/version", json!(""), "version must not be empty"),
        case(
            "a binary with a path",
            "/spec/binary",
            json!("../../bin/sh"),
            "binary must be a file name, without a directory",
        ),
    ]
}

fn fetching() -> Vec<Case> {
    let sha256 = "a".repeat(64);
    let platform = json!({"os": "linux", "arch": "amd64", "location": "https://example.org/s", "sha256": sha256});
    let with = |key: &str, value: &str| {
        let mut platform = platform.clone();
        platform[key] = json!(value);
        json!({"platforms": [platform]})
    };
    let fetch = "/spec/fetchStrategy";
    let http = "/spec/fetchStrategy/anonHttp";
    vec![
        case("no way to fetch", fetch, json!({}), "exactly one of anonHttp, platforms and image must be set"),
        case(
            "two ways to fetch",
            "/spec/fetchStrategy/platforms",
            json!([platform]),
            "exactly one of anonHttp, platforms and image must be set",
        ),
        case(
            "a short digest",
            http,
            json!({"location": "https://e/x", "sha256": "abc"}),
            "sha256 must be the artifact's SHA-256: 64 lower-case hex digits",
        ),
        case(
            "a digest in capitals",
            http,
            json!({"location": "https://e/x", "sha256": "A".repeat(64)}),
            "sha256 must be the artifact's SHA-256: 64 lower-case hex digits",
        ),
        case(
            "a file URL",
            http,
            json!({"location": "file:///etc/passwd", "sha256": sha256}),
            "location must be an http or https URL with a path",
        ),
        case(
            "a URL with a blank",
            http,
            json!({"location": "https://e/a b", "sha256": sha256}),
            "location must be an http or https URL with a path",
        ),
        case("an OCI artifact", fetch, with("location", "oci://e/x"), "oci:// locations are not supported yet"),
        case("a Windows platform", fetch, with("os", "windows"), "os must be linux"),
        case(
            "an unknown architecture",
            fetch,
            with("arch", "x86_64"),
            "arch must be one of amd64, arm, arm64, ppc64le, riscv64 and s390x",
        ),
        case("no platforms", fetch, json!({"platforms": []}), "platforms must not be empty"),
        case(
            "a platform twice",
            fetch,
            json!({"platforms": [platform, platform]}),
            "platforms must not name an os and arch twice",
        ),
        case("an image", fetch, json!({"image": "example.org/shims@sha256:0"}), "image is not supported yet"),
        case("a Secret", "/spec/fetchStrategy/secretName", json!("pull"), "secretName is not supported yet"),
    ]
}

fn rollout() -> Vec<Case> {
    let strategy = "/spec/rolloutStrategy";
    let max_update = |value: Value| json!({"rolling": {"maxUpdate": value}});
    let recreate = "type recreate takes all nodes at once: rolling and canary must not be set with it";
    let canary = "canary must be a number or a percentage from 0% to 100%";
    let failures = "maxFailures must be a number of at least 1 or a percentage from 1% to 100%";
    let budget = "maxUpdate must be a number of at least 1 or a percentage from 1% to 100%";
    vec![
        case("a budget of 0", strategy, max_update(json!(0)), budget),
        case("a negative budget", strategy, max_update(json!(-1)), budget),
        case("a budget of 0%", strategy, max_update(json!("0%")), budget),
        case("a budget of 101%", strategy, max_update(json!("101%")), budget),
        case("a budget in words", strategy, max_update(json!("some")), budget),
        case("recreate with a budget", strategy, json!({"type": "recreate", "rolling": {}}), recreate),
        case("recreate with a canary", strategy, json!({"type": "recreate", "canary": 0}), recreate),
        case("an unknown type", strategy, json!({"type": "fast"}), "type must be rolling"),
        case("a negative canary", strategy, json!({"canary": -1}), canary),
        // Ten digits may be more than we can read: such a Shim would end the watch of all.
        case("a canary of a thousand millions", strategy, json!({"canary": 1_000_000_000}), canary),
        case("a canary of 101%", strategy, json!({"canary": "101%"}), canary),
        case("no failures at all", strategy, json!({"maxFailures": 0}), failures),
        case("failures in words", strategy, json!({"maxFailures": "few"}), failures),
        case("a long history", "/spec/revisionHistoryLimit", json!(101), "revisionHistoryLimit must be from 0 to 100"),
    ]
}

/// Changes of the good object that are refused.
pub fn refused_changes() -> Vec<Case> {
    vec![
        case("another RuntimeClass", "/spec/runtimeClass/name", json!("other"), "runtimeClass.name is immutable"),
        case("another handler", "/spec/runtimeClass/handler", json!("other"), "runtimeClass.handler is immutable"),
        case("no handler any more", "/spec/runtimeClass/handler", Value::Null, "runtimeClass.handler is immutable"),
    ]
}

/// Refused by the schema; offline the type itself refuses them.
pub fn refused_by_schema() -> Vec<Case> {
    vec![
        case("no digest", "/spec/fetchStrategy/anonHttp", json!({"location": "https://e/x"}), "sha256"),
        case("no version", "/spec/version", Value::Null, "version"),
        case("no RuntimeClass", "/spec/runtimeClass", Value::Null, "runtimeClass"),
        case("a selector that is a list", "/spec/nodeSelector", json!(["a"]), "nodeSelector"),
        case("paused in words", "/spec/rolloutStrategy", json!({"paused": "yes"}), "paused"),
    ]
}
