//! /healthz, /readyz and /metrics.
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};
use std::time::{Duration, Instant};

use anyhow::Context;
use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use prometheus_client::encoding::prometheus_text::CONTENT_TYPE;
use shim_core::limits::RESYNC;
use tokio::net::TcpListener;

use crate::metrics::Metrics;

/// What the probes ask about.
pub(crate) struct Health {
    pub(crate) metrics: Arc<Metrics>,
    ready: AtomicBool,
    alive: Mutex<Instant>,
}

impl Health {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, ready: AtomicBool::new(false), alive: Mutex::new(Instant::now()) }
    }

    /// The cluster can be read.
    pub(crate) fn set_ready(&self) {
        self.ready.store(true, Ordering::Relaxed);
    }

    /// The loop goes round.
    pub(crate) fn beat(&self) {
        *self.alive.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn is_alive(&self) -> bool {
        let last = *self.alive.lock().unwrap_or_else(PoisonError::into_inner);
        last.elapsed() < RESYNC + Duration::from_secs(60)
    }
}

/// Serves for ever.
pub(crate) async fn serve(address: &str, health: Arc<Health>) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address).await.with_context(|| format!("can't listen on {address}"))?;
    tracing::info!(address = %listener.local_addr()?, "serving /healthz, /readyz and /metrics");
    let router = Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(health);
    axum::serve(listener, router).await.context("the HTTP server ended")
}

async fn healthz(State(health): State<Arc<Health>>) -> impl IntoResponse {
    answer(health.is_alive(), "the loop does not go round")
}

async fn readyz(State(health): State<Arc<Health>>) -> impl IntoResponse {
    answer(health.ready.load(Ordering::Relaxed), "the cluster could not be read yet")
}

fn answer(good: bool, bad: &'static str) -> (StatusCode, &'static str) {
    if good { (StatusCode::OK, "ok") } else { (StatusCode::SERVICE_UNAVAILABLE, bad) }
}

async fn metrics(State(health): State<Arc<Health>>) -> impl IntoResponse {
    let kind = [(header::CONTENT_TYPE, CONTENT_TYPE)];
    match health.metrics.text() {
        Ok(text) => (StatusCode::OK, kind, text),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, kind, error.to_string()),
    }
}
