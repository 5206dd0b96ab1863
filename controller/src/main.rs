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
//! | http, metrics | /healthz, /readyz, /metrics |
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

use std::process::ExitCode;

use clap::Parser;

use crate::args::Args;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args = Args::parse();
    args.init_logging();
    match Box::pin(run::run(args)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
