//! Spans, and what is noted in them.
use std::fmt::Display;

use kube::ResourceExt as _;
use shim_core::{
    names::ShimName,
    plan::{Action, MarkWrite},
    revision::RevisionView,
    task::Task,
};
use tracing::{Span, field::Empty};

/// Begins the span of an action, with what it is about.
pub(crate) fn begin(name: &'static str, action: &Action) -> Span {
    let span = tracing::info_span!(
        "action",
        action = name,
        node = Empty,
        shim = Empty,
        job = Empty,
        runtime_class = Empty,
        result = Empty,
        otel.status_code = Empty,
        otel.status_description = Empty,
    );
    if !span.is_disabled() {
        describe(&span, action);
    }
    span
}

fn describe(span: &Span, action: &Action) {
    let text = |field: &str, value: &dyn Display| {
        span.record(field, tracing::field::display(value));
    };
    match action {
        Action::Hold(shim) | Action::Release(shim) | Action::Status(shim, _) => text("shim", shim),
        Action::Apply(class) => text("runtime_class", &class.name_any()),
        Action::DeleteRuntimeClass(class, shim) => {
            text("runtime_class", class);
            text("shim", shim);
        }
        Action::Note(job, _) | Action::Record(job, _) | Action::Delete(job) | Action::Withdraw(job, _) => {
            text("job", &job.name);
        }
        Action::Revise(RevisionView { shim, .. }) | Action::Stamp(shim, ..) | Action::Forget(shim, _) => {
            text("shim", shim);
        }
        Action::Mark(MarkWrite { node, .. }) => text("node", node),
        Action::Create(Task { node, ops, .. }) => {
            text("node", node);
            text("shim", &ops.keys().map(ShimName::as_str).collect::<Vec<_>>().join(","));
        }
    }
}

/// Ends it with what became of the action.
pub(crate) fn end<E: Display>(span: &Span, result: &Result<(), E>) {
    span.record("result", if result.is_ok() { "done" } else { "refused" });
    if let Err(error) = result {
        fail(span, error);
    }
}

/// What the current span is about has failed.
pub(crate) fn failed(error: &anyhow::Error) {
    fail(&Span::current(), error);
}

fn fail(span: &Span, error: &impl Display) {
    span.record("otel.status_code", "ERROR").record("otel.status_description", tracing::field::display(error));
}
