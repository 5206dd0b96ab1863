//! The loop: wait, observe, plan, act.
use std::{pin::pin, sync::Arc, time::Duration};

use anyhow::Context;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use shim_core::{limits::RESYNC, plan};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::Notify,
    time::{interval, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::Span;

use crate::{
    act::Actor,
    args::Args,
    client,
    http_server::{self, Health},
    lease::Keeper,
    metrics::{Metrics, Pass},
    observe::Observer,
    telemetry::spans,
};

/// A pass follows the last one no sooner: events that come together are answered together.
const PACE: Duration = Duration::from_millis(250);
/// While the Lease is waited for, the probes hear from the loop this often.
const BEAT: Duration = Duration::from_secs(5);
/// After a pass that was not carried out in full.
const AGAIN: Duration = Duration::from_secs(1);

/// Runs until SIGTERM, or until the Lease is lost.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let metrics = Arc::new(Metrics::new());
    let client = client::connect(&metrics).await?;
    let health = Arc::new(Health::new(metrics.clone()));
    let changed = Arc::new(Notify::new());
    let stop = CancellationToken::new();
    let (observer, mut watches) = Observer::start(&client, &args.namespace, &changed, &metrics);
    let (keeper, leadership) = Keeper::new(client.clone(), &args.namespace, identity(&args), metrics.clone());
    let actor = Actor::new(&client, args.settings(), leadership, stop.clone());
    let leader = Leader { observer, actor, keeper, health: health.clone(), changed, stop: stop.clone() };
    // Whatever ends first ends the process: a controller without its Lease, its watches or its probes is worse than none.
    tokio::select! {
        result = http_server::serve(&args.listen, health) => result,
        ended = watches.join_next() => anyhow::bail!("a watch ended: {ended:?}"),
        Err(error) = cancel_on_signal(stop) => Err(error),
        result = leader.lead() => result,
    }
}

/// Pod names are used again after a restart of the container; the process is not the same.
fn identity(args: &Args) -> String {
    format!("{}_{}_{}", args.identity, std::process::id(), Timestamp::now().as_millisecond())
}

struct Leader {
    observer: Observer,
    actor: Actor,
    keeper: Keeper,
    health: Arc<Health>,
    changed: Arc<Notify>,
    stop: CancellationToken,
}

impl Leader {
    async fn lead(mut self) -> anyhow::Result<()> {
        let Some(lease) = self.stop.clone().run_until_cancelled(self.take()).await.transpose()? else { return Ok(()) };
        self.health.metrics.lead();
        // The passes end between two writes, and only then is the Lease given back.
        let done = CancellationToken::new();
        let Self { observer, actor, keeper, health, changed, stop } = &mut self;
        let passes = async {
            passes(observer, actor, health, changed, stop).await;
            done.cancel();
        };
        tokio::select! {
            biased;
            result = keeper.hold(lease, done.clone()) => result,
            () = async { passes.await; std::future::pending().await } => Ok(()),
        }
    }

    async fn take(&self) -> anyhow::Result<Lease> {
        self.observer.synced().await?;
        self.health.set_synced();
        let mut beat = interval(BEAT);
        let mut acquired = pin!(self.keeper.acquire());
        loop {
            tokio::select! {
                lease = &mut acquired => return Ok(lease),
                _ = beat.tick() => self.health.beat(),
            }
        }
    }
}

async fn passes(observer: &Observer, actor: &Actor, health: &Health, changed: &Notify, stop: &CancellationToken) {
    while !stop.is_cancelled() {
        let wait = pass(observer, actor, health).await.unwrap_or_else(|error| {
            health.metrics.passed(Pass::Failed);
            tracing::warn!("a pass failed and is repeated: {error:#}");
            AGAIN
        });
        health.beat();
        let rest = async {
            sleep(PACE).await;
            tokio::select! {
                () = changed.notified() => {}
                () = sleep(wait) => {}
            }
        };
        stop.run_until_cancelled(rest).await;
    }
}

/// One pass; returns after what time to look again if nothing happens before.
#[tracing::instrument(skip_all, fields(actions, otel.status_code, otel.status_description))]
async fn pass(observer: &Observer, actor: &Actor, health: &Health) -> anyhow::Result<Duration> {
    let metrics = &health.metrics;
    let world = metrics.phase("observe", observer.world()).await.inspect_err(spans::failed);
    let world = world.context("the cluster can't be observed")?;
    metrics.saw(&world);
    let plan = metrics.phase("plan", async { plan::plan(&world) }).await;
    Span::current().record("actions", plan.actions.len());
    let complete = metrics.phase("act", actor.act(&world, &plan, observer, metrics)).await;
    if !complete {
        metrics.passed(Pass::Incomplete);
        return Ok(AGAIN);
    }
    metrics.passed(Pass::Complete);
    let until = plan.wake_at.map(|at| Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default());
    Ok(until.map_or(RESYNC, |until| until.min(RESYNC)))
}

async fn cancel_on_signal(stop: CancellationToken) -> anyhow::Result<()> {
    let mut term = signal(SignalKind::terminate()).context("SIGTERM can't be waited for")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT can't be waited for")?;
    tokio::select! {
        _ = term.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("asked to end");
    stop.cancel();
    Ok(())
}
