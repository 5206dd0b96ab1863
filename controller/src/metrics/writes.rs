//! Writes to the API server, counted where they leave the process: whatever makes one, it is counted.
use std::{
    pin::Pin,
    task::{Context, Poll},
};

use http::{Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
};
use tower::{Layer, Service};

/// Labels of a write.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Write {
    verb: &'static str,
    resource: String,
    result: &'static str,
}

/// The counter, and the layer of a client that counts with it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Writes(Family<Write, Counter>);

impl Writes {
    pub(super) fn family(&self) -> Family<Write, Counter> {
        self.0.clone()
    }

    fn start<B>(&self, request: &Request<B>) -> Option<Pending> {
        let verb = verb(request.method())?;
        let write = Write { verb, resource: resource(request.uri().path()), result: "unanswered" };
        let is_tested = request.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == "application/json-patch+json");
        Some(Pending { counter: self.0.clone(), write, is_tested })
    }
}

/// A write under way. Dropped without an answer, it counts as unanswered: its sender gave up.
struct Pending {
    counter: Family<Write, Counter>,
    write: Write,
    /// Whether it is a JSON patch, which may test what it changes.
    is_tested: bool,
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.counter.get_or_create(&self.write).inc();
    }
}

impl<S> Layer<S> for Writes {
    type Service = CountWrites<S>;

    fn layer(&self, inner: S) -> CountWrites<S> {
        CountWrites { inner, writes: self.clone() }
    }
}

/// A client that counts its writes.
#[derive(Debug, Clone)]
pub(crate) struct CountWrites<S> {
    inner: S,
    writes: Writes,
}

impl<S, A, B> Service<Request<A>> for CountWrites<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let pending = self.writes.start(&request);
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            if let (Some(mut pending), Ok(response)) = (pending, &answer) {
                pending.write.result = result(response.status(), pending.is_tested);
            }
            answer
        })
    }
}

/// As RBAC names it; `None`: a read.
fn verb(method: &Method) -> Option<&'static str> {
    match *method {
        Method::POST => Some("create"),
        Method::PUT => Some("update"),
        Method::PATCH => Some("patch"),
        Method::DELETE => Some("delete"),
        _ => None,
    }
}

/// `nodes` of /api/v1/nodes/a, `shims/status` of /apis/shim.dev/v1alpha1/shims/a/status.
fn resource(path: &str) -> String {
    let parts: Vec<_> = path.split('/').filter(|part| !part.is_empty()).collect();
    let after_version = match parts[..] {
        ["api", _, ref rest @ ..] | ["apis", _, _, ref rest @ ..] => rest,
        _ => &[],
    };
    match after_version {
        ["namespaces", _, resource, rest @ ..] | [resource, rest @ ..] => match rest {
            [_, sub, ..] => format!("{resource}/{sub}"),
            _ => (*resource).to_owned(),
        },
        [] => "other".to_owned(),
    }
}

fn result(status: StatusCode, is_tested: bool) -> &'static str {
    match status.as_u16() {
        200..=299 => "ok",
        // The object was not as planned: gone, there already, or changed meanwhile.
        404 | 409 => "conflict",
        // So says the test in a JSON patch; of other writes, that what they write is not valid.
        422 if is_tested => "conflict",
        429 | 500..=599 => "unavailable",
        _ => "refused",
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::FutureExt as _;
    use tower::ServiceExt as _;

    use super::*;

    fn patch(path: &str) -> Request<()> {
        Request::patch(path).body(()).unwrap()
    }

    fn count(writes: &Writes, result: &'static str) -> u64 {
        writes.0.get_or_create(&Write { verb: "patch", resource: "nodes".to_owned(), result }).get()
    }

    #[test]
    fn resources_are_named_as_rbac_names_them() {
        assert_eq!(resource("/api/v1/nodes/n"), "nodes");
        assert_eq!(resource("/apis/shim.dev/v1alpha1/shims/a/status"), "shims/status");
        assert_eq!(resource("/apis/batch/v1/namespaces/shim-system/jobs"), "jobs");
        assert_eq!(resource("/apis/batch/v1/namespaces/shim-system/jobs/j"), "jobs");
        assert_eq!(resource("/version"), "other");
    }

    #[tokio::test]
    async fn an_answer_counts_by_its_status_and_only_a_patch_that_tests_is_in_conflict_with_a_422() {
        let writes = Writes::default();
        let answer = |_: Request<()>| async { Ok::<_, Infallible>(Response::builder().status(422).body(()).unwrap()) };
        let server = writes.layer(tower::service_fn(answer));
        let mut tested = patch("/api/v1/nodes/n");
        tested.headers_mut().insert(CONTENT_TYPE, "application/json-patch+json".parse().unwrap());
        server.clone().oneshot(tested).await.unwrap();
        assert_eq!(["conflict", "refused", "unanswered"].map(|result| count(&writes, result)), [1, 0, 0]);
        server.oneshot(patch("/api/v1/nodes/n")).await.unwrap();
        assert_eq!(["conflict", "refused", "unanswered"].map(|result| count(&writes, result)), [1, 1, 0]);
    }

    #[test]
    fn a_write_that_is_given_up_counts_as_unanswered() {
        let writes = Writes::default();
        let never = |_: Request<()>| std::future::pending::<Result<Response<()>, Infallible>>();
        let request = writes.layer(tower::service_fn(never)).oneshot(patch("/api/v1/nodes/n"));
        assert!(request.now_or_never().is_none());
        assert_eq!(count(&writes, "unanswered"), 1);
    }

    #[test]
    fn reads_do_not_count() {
        assert!(Writes::default().start(&Request::get("/api/v1/nodes").body(()).unwrap()).is_none());
    }
}
