//! The real API server refuses what the offline rules refuse, with the same words.
#[path = "../../../api/cases.rs"]
mod cases;

use anyhow::Result;

use crate::support::{Session, session};

fn refusal(session: &Session, object: &serde_json::Value) -> String {
    match session.cluster.kubectl_with(
        &["apply", "--server-side", "--dry-run=server", "--force-conflicts", "-f", "-"],
        object.to_string(),
    ) {
        Ok(_) => String::new(),
        Err(error) => format!("{error:#}"),
    }
}

#[test]
fn the_api_server_accepts_what_is_good() {
    let session = session();
    for object in [cases::good(), cases::good_platforms()] {
        assert_eq!(refusal(&session, &object), "");
    }
}

#[test]
fn the_api_server_refuses_each_bad_object_with_the_message_that_a_user_needs() {
    let session = session();
    for case in cases::refused_by_rule().into_iter().chain(cases::refused_by_schema()) {
        let refusal = refusal(&session, &case.object);
        assert!(refusal.contains(case.message), "{}: {refusal:?}", case.what);
    }
}

#[test]
fn the_api_server_refuses_each_bad_change_with_the_message_that_a_user_needs() -> Result<()> {
    let session = session();
    // It selects no node: only the rules are asked about here.
    let object = cases::changed("/spec/nodeSelector", serde_json::json!({"no": "such-node"}));
    session.cluster.kubectl_with(&["apply", "--server-side", "-f", "-"], object.to_string())?;
    for mut case in cases::refused_changes() {
        case.object["spec"]["nodeSelector"] = object["spec"]["nodeSelector"].clone();
        let replaced =
            session.cluster.kubectl_with(&["replace", "--dry-run=server", "-f", "-"], case.object.to_string());
        let refusal = format!("{:#}", replaced.expect_err(case.what));
        assert!(refusal.contains(case.message), "{}: {refusal:?}", case.what);
    }
    session.cluster.kubectl(&["delete", "shim", "spin", "--wait=true", "--timeout=60s"]).map(drop)
}
