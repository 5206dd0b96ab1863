//! What the API server would refuse in the RuntimeClass that we make of a spec, once a second and unseen: it is better said
//! of the Shim.
use k8s_openapi::api::core::v1::Toleration;

use crate::{api::RuntimeClassSpec, names::is_dns_subdomain};

/// What is wrong, with the field's path.
pub(super) fn check(class: &RuntimeClassSpec) -> Result<(), String> {
    if !is_dns_subdomain(&class.name) {
        return Err(format!("runtimeClass.name {:?} is not a DNS subdomain", class.name));
    }
    let overhead = class.overhead.iter().flat_map(|overhead| &overhead.pod_fixed).flatten();
    if let Some((resource, quantity)) = overhead.into_iter().find(|(_, quantity)| !is_quantity(&quantity.0)) {
        return Err(format!("runtimeClass.overhead.podFixed.{resource}: {:?} is not a quantity", quantity.0));
    }
    let fault = class.tolerations.iter().flatten().find_map(fault_of);
    fault.map_or(Ok(()), |fault| Err(format!("runtimeClass.tolerations: {fault}")))
}

/// A decimal number with a suffix of Kubernetes or an exponent; nothing negative.
fn is_quantity(text: &str) -> bool {
    let number = text.trim_start_matches('+');
    let end = number.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(number.len());
    let (digits, suffix) = number.split_at(end);
    let is_number = digits.bytes().any(|b| b.is_ascii_digit()) && digits.matches('.').count() <= 1;
    let exponent = || suffix.strip_prefix(['e', 'E']).is_some_and(|power| power.parse::<i8>().is_ok());
    let known = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    is_number && (known.contains(&suffix) || exponent())
}

fn fault_of(toleration: &Toleration) -> Option<String> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (key, operator, effect) = (text(&toleration.key), text(&toleration.operator), text(&toleration.effect));
    match () {
        () if key.is_empty() && operator != "Exists" => Some("without a key the operator must be Exists".to_owned()),
        () if operator == "Exists" && !text(&toleration.value).is_empty() => {
            Some(format!("{key}: with the operator Exists there is no value"))
        }
        () if !["", "NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect.as_str()) => {
            Some(format!("{key}: there is no effect {effect:?}"))
        }
        () if toleration.toleration_seconds.is_some() && effect != "NoExecute" => {
            Some(format!("{key}: tolerationSeconds needs the effect NoExecute"))
        }
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn verdict(change: &serde_json::Value) -> Result<(), String> {
        let mut class = json!({"name": "spin"});
        class.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        check(&serde_json::from_value(class).unwrap())
    }

    #[test]
    fn what_the_api_server_takes_is_taken() {
        for quantity in ["64Mi", "0.5", "100m", "1e3", "1E2", "2E", "+1"] {
            assert_eq!(verdict(&json!({"overhead": {"podFixed": {"memory": quantity}}})), Ok(()), "{quantity}");
        }
        for toleration in [
            json!({"operator": "Exists"}),
            json!({"key": "wasm", "value": "yes", "effect": "NoSchedule"}),
            json!({"key": "wasm", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}),
        ] {
            assert_eq!(verdict(&json!({"tolerations": [toleration]})), Ok(()), "{toleration}");
        }
    }

    #[test]
    fn what_it_would_refuse_is_named() {
        let cases = [
            (json!({"name": "a..b"}), "runtimeClass.name \"a..b\" is not a DNS subdomain"),
            (
                json!({"overhead": {"podFixed": {"memory": "10MB"}}}),
                "runtimeClass.overhead.podFixed.memory: \"10MB\" is not a quantity",
            ),
            (
                json!({"overhead": {"podFixed": {"cpu": "-1"}}}),
                "runtimeClass.overhead.podFixed.cpu: \"-1\" is not a quantity",
            ),
            (
                json!({"tolerations": [{"value": "x"}]}),
                "runtimeClass.tolerations: without a key the operator must be Exists",
            ),
            (
                json!({"tolerations": [{"key": "a", "operator": "Exists", "value": "x"}]}),
                "runtimeClass.tolerations: a: with the operator Exists there is no value",
            ),
            (
                json!({"tolerations": [{"key": "a", "effect": "Noschedule"}]}),
                "runtimeClass.tolerations: a: there is no effect \"Noschedule\"",
            ),
            (
                json!({"tolerations": [{"key": "a", "tolerationSeconds": 5}]}),
                "runtimeClass.tolerations: a: tolerationSeconds needs the effect NoExecute",
            ),
        ];
        for (change, wanted) in cases {
            assert_eq!(verdict(&change), Err(wanted.to_owned()));
        }
    }
}
