//! What becomes of a fake node and its Pods.

/// kwok's configuration.
pub(crate) const STAGES: &str = include_str!("stages.yaml");

#[cfg(test)]
mod tests {
    use serde_yaml::Deserializer;
    use shim_core::{
        names::GROUP,
        report::{FORMAT, Outcome, Report},
        task::TASK_ENV,
    };

    use super::*;

    /// The Go template that a stage makes a new status with.
    fn template(stage: &str) -> String {
        let documents = Deserializer::from_str(STAGES)
            .map(|document| -> serde_json::Value { serde::Deserialize::deserialize(document).unwrap() });
        let (stages, others): (Vec<_>, Vec<_>) = documents.partition(|document| document["kind"] == "Stage");
        assert!(stages.iter().all(|stage| stage["apiVersion"] == "kwok.x-k8s.io/v1alpha1"));
        let others: Vec<_> = others.iter().map(|other| (&other["kind"], &other["apiVersion"])).collect();
        assert_eq!(others, [(&"KwokConfiguration".into(), &"config.kwok.x-k8s.io/v1alpha1".into())]);
        assert_eq!(stages.len(), 5);
        let found = stages.iter().find(|found| found["metadata"]["name"] == stage).unwrap();
        found["spec"]["next"]["statusTemplate"].as_str().unwrap().to_owned()
    }

    #[test]
    fn an_installer_ends_with_a_report_that_the_controller_reads() {
        let template = template("installer-ends");
        assert!(template.contains(&format!("eq .name \"{TASK_ENV}\"")));
        assert!(template.contains(&format!("dict \"format\" {FORMAT} \"outcomes\" $outcomes \"restarted\" false")));
        assert!(template.contains("dict \"outcome\" \"done\""));
        let report = r#"{"format":1,"outcomes":{"a":{"outcome":"done"}},"restarted":false}"#;
        let report: Report = serde_json::from_str(report).unwrap();
        assert!(report.outcomes.values().all(|outcome| matches!(outcome, Outcome::Done { .. })));
    }

    #[test]
    fn a_node_lists_the_handlers_that_its_labels_tell_of() {
        assert!(template("node-lists-handlers").contains(&format!("trimPrefix \"{GROUP}/\"")));
        assert!(STAGES.contains(&format!("startswith(\"{GROUP}/\")")));
    }
}
