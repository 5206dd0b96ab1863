//! The rules of the API server, before anything is sent.
use kube::{ResourceExt as _, core::cel::ValidationErrors};
use shim_core::api::Shim;

use crate::exit::Failure;

/// Whether the server would accept a new Shim.
pub fn check(shim: &Shim) -> Result<(), Failure> {
    shim.validate_cel().map_err(|errors| invalid(shim, &errors))
}

/// Whether the server would accept this in place of `live`.
pub fn check_update(shim: &Shim, live: &Shim) -> Result<(), Failure> {
    shim.validate_cel_update(live).map_err(|errors| invalid(shim, &errors))
}

fn invalid(shim: &Shim, errors: &ValidationErrors) -> Failure {
    let mut lines: Vec<String> = Vec::new();
    for error in errors.as_slice() {
        // Messages name their field already where the rule stands at the field itself.
        let line = match error.field_path.as_str() {
            "" => error.message.clone(),
            path => format!("{path}: {}", error.message),
        };
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    Failure::worded(format!("The Shim {:?} is invalid: \n* {}", shim.name_any(), lines.join("\n* ")))
}
