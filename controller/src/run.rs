//! The loop: wait, observe, plan, act.
use std::{pin::pin, sync::Arc, time::Duration};

use anyhow::Context;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
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
    observe::{self, Observer},
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
    let stop = CancellationToken::new();
    let (keeper, leadership) = Keeper::new(client.clone(), &args.namespace, identity(&args), metrics.clone());
    let actor = Actor::new(&client, args.settings(), leadership, stop.clone());
    let namespace = args.namespace.clone();
    let leader = Leader { client, namespace, actor, keeper, health: health.clone(), stop: stop.clone() };
    // Whatever ends first ends the process: a controller without its Lease or its probes is worse than none.
    tokio::select! {
        result = http_server::serve(&args.listen, health) => result,
        Err(error) = cancel_on_signal(stop) => Err(error),
        result = leader.lead() => result,
    }
}

/// Pod names are used again after a restart of the container; the process is not the same.
fn identity(args: &Args) -> String {
    format!("{}_{}_{}", args.identity, std::process::id(), Timestamp::now().as_millisecond())
}

struct Leader {
    client: Client,
    namespace: String,
    actor: Actor,
    keeper: Keeper,
    health: Arc<Health>,
    stop: CancellationToken,
}

impl Leader {
    async fn lead(self) -> anyhow::Result<()> {
        let Some(lease) = self.stop.run_until_cancelled(self.take()).await else { return Ok(()) };
        self.health.metrics.lead();
        // The passes end between two writes, and only then is the Lease given back.
        let done = CancellationToken::new();
        let passes = async {
            self.watch().await?;
            done.cancel();
            std::future::pending::<anyhow::Result<()>>().await
        };
        tokio::select! {
            biased;
            result = self.keeper.hold(lease, done.clone()) => result,
            result = passes => result,
        }
    }

    async fn take(&self) -> Lease {
        let mut beat = interval(BEAT);
        let mut acquired = pin!(async {
            self.rehearse().await;
            self.keeper.acquire().await
        });
        loop {
            tokio::select! {
                lease = &mut acquired => return lease,
                _ = beat.tick() => self.health.beat(),
            }
        }
    }

    /// A right that is missing shows here and not when it is this one's turn.
    async fn rehearse(&self) {
        while let Err(error) = observe::rehearse(&self.client, &self.namespace).await {
            tracing::warn!("the cluster can't be read: {error}");
            sleep(BEAT).await;
        }
        self.health.set_ready();
    }

    /// Watches the cluster and makes passes until it is told to stop. What a cache was told before the Lease was taken may
    /// be older than the last write of the holder before: so it begins here, with a list.
    async fn watch(&self) -> anyhow::Result<()> {
        let Self { client, namespace, actor, health, stop, .. } = self;
        let changed = Arc::new(Notify::new());
        let (observer, mut watches) = Observer::start(client, namespace, &changed, &health.metrics);
        let passes = async {
            stop.run_until_cancelled(observer.synced()).await.transpose()?;
            passes(&observer, actor, health, &changed, stop).await;
            Ok(())
        };
        tokio::select! {
            ended = watches.join_next() => anyhow::bail!("a watch ended: {ended:?}"),
            result = passes => result,
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

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{Mutex, PoisonError},
    };

    use kube::client::Body;
    use serde_json::json;
    use shim_core::job::Settings;
    use tokio::time::timeout;

    use super::*;

    /// An API server that has nothing but a Lease that somebody else holds, and what it was asked.
    fn server() -> (Client, Arc<Mutex<Vec<String>>>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = asked.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let uri = request.uri().to_string();
            let body = if uri.contains("/leases/") {
                json!({"metadata": {"name": "shim-controller"}, "spec": {"holderIdentity": "other"}})
            } else {
                json!({"metadata": {}, "items": []})
            };
            log.lock().unwrap_or_else(PoisonError::into_inner).push(uri);
            async move { Ok::<_, Infallible>(http::Response::new(Body::from(body.to_string().into_bytes()))) }
        });
        (Client::new(service, "s"), asked)
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_the_lease_has_read_one_object_of_each_kind_and_watches_nothing() {
        let (client, asked) = server();
        let (metrics, stop) = (Arc::new(Metrics::new()), CancellationToken::new());
        let (keeper, leadership) = Keeper::new(client.clone(), "s", "me".to_owned(), metrics.clone());
        let settings = Settings { namespace: "s".to_owned(), image: String::new(), pull_secrets: Vec::new() };
        let actor = Actor::new(&client, settings, leadership, stop.clone());
        let health = Arc::new(Health::new(metrics));
        let leader = Leader { client, namespace: "s".to_owned(), actor, keeper, health, stop };
        assert!(timeout(Duration::from_secs(10), leader.take()).await.is_err(), "it is held");
        let asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
        let (leases, lists): (Vec<_>, Vec<_>) = asked.iter().partition(|uri| uri.contains("/leases/"));
        assert!(leases.len() > 3, "{leases:?}");
        assert_eq!(lists.len(), 6, "{lists:?}");
        assert!(lists.iter().all(|uri| uri.contains("limit=1")), "{lists:?}");
    }
}
