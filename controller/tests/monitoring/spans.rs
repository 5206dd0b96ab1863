//! Spans: that they arrive, what they say, and that a collector never stands in the way.
use std::net::TcpListener;

use opentelemetry_proto::tonic::trace::v1::{Span, status::StatusCode};

use crate::{
    cluster::{CLASSES, Cluster},
    collector::{Collector, attribute},
    controller::{Controller, eventually},
};

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// Milliseconds between two batches; this long, only the end of the process sends one.
const DELAY: &str = "OTEL_BSP_SCHEDULE_DELAY";

fn named<'s>(spans: &'s [Span], name: &str) -> Vec<&'s Span> {
    spans.iter().filter(|span| span.name == name).collect()
}

fn parent<'s>(spans: &'s [Span], span: &Span) -> &'s Span {
    spans.iter().find(|other| other.span_id == span.parent_span_id).unwrap()
}

fn action<'s>(spans: &'s [Span], name: &str) -> &'s Span {
    let is_it = |span: &&&Span| attribute(&span.attributes, "action").as_deref() == Some(name);
    named(spans, "action").iter().find(is_it).unwrap_or_else(|| panic!("no action {name} in {spans:#?}"))
}

/// The spans of a controller that has settled and was asked to end.
fn spans_of_a_run(collector: &Collector, cluster: &Cluster) -> Vec<Span> {
    let mut controller = Controller::start(cluster, &[(ENDPOINT, &collector.endpoint()), (DELAY, "3600000")]);
    controller.settles();
    assert!(controller.stop().success());
    collector.spans()
}

#[test]
fn a_pass_and_its_actions_arrive_before_the_process_ends() {
    let collector = Collector::start();
    let spans = spans_of_a_run(&collector, &Cluster::start());
    for name in ["observe", "plan", "act"] {
        let pass = parent(&spans, named(&spans, name)[0]);
        assert_eq!((pass.name.as_str(), pass.parent_span_id.len()), ("pass", 0));
    }
    let create = action(&spans, "create-job");
    assert_eq!(parent(&spans, create).name, "act");
    let says = |key| attribute(&create.attributes, key);
    assert!(matches!(says("node").as_deref(), Some("good" | "bad")), "{create:#?}");
    assert_eq!((says("shim").as_deref(), says("result").as_deref()), (Some("wasmtime"), Some("done")));
    assert!(says("job").is_none());
}

#[test]
fn the_sender_is_named() {
    let collector = Collector::start();
    spans_of_a_run(&collector, &Cluster::start());
    let resource = collector.resource().attributes;
    assert_eq!(attribute(&resource, "service.name").as_deref(), Some("shim-controller"));
    assert_eq!(attribute(&resource, "service.version").as_deref(), Some(env!("CARGO_PKG_VERSION")));
}

#[test]
fn the_sender_is_named_as_the_variables_say() {
    let (collector, cluster) = (Collector::start(), Cluster::start());
    let names = [("OTEL_SERVICE_NAME", "ours"), ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")];
    let _controller =
        Controller::start(&cluster, &[(ENDPOINT, &collector.endpoint()), (DELAY, "50"), names[0], names[1]]);
    eventually(|| if collector.spans().is_empty() { Err("no span arrives".to_owned()) } else { Ok(()) });
    let resource = collector.resource().attributes;
    assert_eq!(attribute(&resource, "service.name").as_deref(), Some("ours"));
    assert_eq!(attribute(&resource, "deployment.environment.name").as_deref(), Some("test"));
}

#[test]
fn they_go_over_tls_to_whom_the_certificates_vouch_for() {
    let (cluster, (collector, certificate)) = (Cluster::start(), Collector::start_tls());
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), certificate).unwrap();
    let trust = ("SSL_CERT_FILE", file.path().to_str().unwrap());
    let _controller = Controller::start(&cluster, &[(ENDPOINT, &collector.endpoint()), (DELAY, "50"), trust]);
    eventually(|| if collector.spans().is_empty() { Err("no span arrives".to_owned()) } else { Ok(()) });
}

#[test]
fn a_refused_write_is_an_error_of_its_span() {
    let (collector, cluster) = (Collector::start(), Cluster::start());
    cluster.forbid(CLASSES);
    let spans = spans_of_a_run(&collector, &cluster);
    let apply = action(&spans, "apply-runtimeclass");
    let status = apply.status.clone().unwrap();
    assert_eq!(status.code(), StatusCode::Error);
    assert!(status.message.contains("runtimeclasses"), "{status:?}");
    assert_eq!(attribute(&apply.attributes, "runtime_class").as_deref(), Some("wasmtime"));
    assert_eq!(attribute(&apply.attributes, "result").as_deref(), Some("refused"));
}

#[test]
fn nothing_is_sent_where_it_is_switched_off() {
    let (collector, cluster) = (Collector::start(), Cluster::start());
    let off = ("OTEL_SDK_DISABLED", "true");
    let mut controller = Controller::start(&cluster, &[(ENDPOINT, &collector.endpoint()), (DELAY, "50"), off]);
    controller.settles();
    assert!(controller.stop().success());
    assert_eq!(collector.spans(), []);
}

#[test]
fn a_protocol_that_is_not_spoken_is_told_and_the_rollout_goes_on() {
    let cluster = Cluster::start();
    let grpc = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    let controller = Controller::start(&cluster, &[(ENDPOINT, "http://127.0.0.1:4317"), grpc]);
    controller.says("only http/protobuf is spoken");
    controller.settles();
}

#[test]
fn a_collector_that_is_not_there_is_told_in_the_log() {
    let cluster = Cluster::start();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let controller = Controller::start(&cluster, &[(ENDPOINT, &format!("http://{closed}")), (DELAY, "50")]);
    controller.settles();
    controller.says("BatchSpanProcessor.ExportError");
}

#[test]
fn a_collector_that_does_not_answer_holds_nothing_up() {
    let cluster = Cluster::start();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let mut controller = Controller::start(&cluster, &[(ENDPOINT, &endpoint), (DELAY, "50")]);
    controller.settles();
    let asked = std::time::Instant::now();
    assert!(controller.stop().success());
    assert!(asked.elapsed().as_secs() < 8, "it took {:?} to end", asked.elapsed());
    controller.says("gave the Lease back");
}
