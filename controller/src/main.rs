//! The controller of kubectl-shim: it observes the cluster, plans with `shim_core::plan`, and acts.
//!
//! | file | does |
//! |---|---|
//! | args | what it is started with |
//! | client | how it talks to the API server |
//! | lease | hold the Lease, or exit |
//! | observe | watches; from them and a fresh list of Jobs, the World |
//! | act | one write for each action of a plan |
//! | run | wait, observe, plan, act |
//! | http_server, metrics | /healthz, /readyz, /metrics |
//! | telemetry | the log, and spans to a collector |
mod act;
mod args;
mod client;
mod herald;
mod http_server;
mod lease;
mod metrics;
mod nodes;
mod observe;
mod run;
mod telemetry;

use std::process::ExitCode;

use clap::Parser;

use crate::{args::Args, telemetry::Telemetry};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args = Args::parse();
    let telemetry = Telemetry::start(&args);
    let result = Box::pin(run::run(args)).await;
    if let Err(error) = &result {
        tracing::error!("{error:#}");
    }
    telemetry.end().await;
    if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
