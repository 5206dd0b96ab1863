//! The API's rules, offline. `tests/e2e` asks the real API server about the same objects.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that can't go on fails")]
mod cases;

use serde_json::Value;
use shim_core::{api::Shim, world::ShimView};

fn shim(object: Value) -> Shim {
    serde_json::from_value(object).unwrap()
}

#[test]
fn good_objects_are_accepted_and_read() {
    for object in [cases::good(), cases::good_platforms()] {
        let shim = shim(object);
        shim.validate_cel().unwrap();
        shim.validate_cel_update(&shim).unwrap();
        ShimView::read(&shim).unwrap().spec.unwrap();
    }
}

#[test]
fn each_bad_object_is_refused_with_the_message_that_a_user_needs() {
    for case in cases::refused_by_rule() {
        let errors = shim(case.object).validate_cel().expect_err(case.what).to_string();
        assert!(errors.contains(case.message), "{}: {errors}", case.what);
    }
}

#[test]
fn each_bad_change_is_refused_with_the_message_that_a_user_needs() {
    let old = shim(cases::good());
    for case in cases::refused_changes() {
        let errors = shim(case.object).validate_cel_update(&old).expect_err(case.what).to_string();
        assert!(errors.contains(case.message), "{}: {errors}", case.what);
    }
}

#[test]
fn what_the_schema_refuses_is_no_shim_offline_either() {
    for case in cases::refused_by_schema() {
        let error = serde_json::from_value::<Shim>(case.object).expect_err(case.what).to_string();
        assert!(error.contains(case.message) || error.contains("invalid type"), "{}: {error}", case.what);
    }
}

#[test]
fn a_null_in_the_options_is_named() {
    let object = cases::changed("/spec/containerdRuntimeOptions", serde_json::json!({"Root": null}));
    let error = ShimView::read(&shim(object)).unwrap().spec.unwrap_err();
    assert_eq!(error, "containerdRuntimeOptions.Root is not a TOML value: null is not allowed");
}
