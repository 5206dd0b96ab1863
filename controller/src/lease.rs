//! Hold the Lease, or exit.
//!
//! A Lease does not fence: between the moment at which the API server accepts a new holder and the moment at which the
//! old one knows, both believe in themselves. So a holder writes only while its Lease has time left for the whole write,
//! and who takes over from one that vanished waits [`LEASE_GRACE`] longer. The age of a record is measured with the own
//! monotonic clock from when it was first seen, never by comparing clocks of two machines.
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::bail;
use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, Client, api::PostParams};
use shim_core::{
    limits::{LEASE_GRACE, LEASE_SECONDS, WRITE_DEADLINE},
    manifests::CONTROLLER,
};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;

const ASK_EVERY: Duration = Duration::from_secs(2);
const RENEW_EVERY: Duration = Duration::from_secs(3);

/// Until when this process is the leader.
#[derive(Debug, Clone)]
pub(crate) struct Leadership(watch::Receiver<Instant>);

impl Leadership {
    /// Whether a write that starts now ends before the Lease does.
    pub(crate) fn may_write(&self) -> bool {
        Instant::now() + WRITE_DEADLINE <= *self.0.borrow()
    }

    #[cfg(test)]
    pub(crate) fn with_time_left(time: Duration) -> Self {
        Self(watch::channel(Instant::now() + time).1)
    }
}

/// The Lease of all controllers of a cluster.
pub(crate) struct Keeper {
    api: Api<Lease>,
    identity: String,
    metrics: Arc<Metrics>,
    until: watch::Sender<Instant>,
}

/// How a Lease was come by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taken {
    /// Nobody held it, or the last holder gave it back.
    Free,
    /// The last holder vanished; a write of it may still be under way.
    Expired,
}

/// A record as it was first seen.
struct Seen {
    lease: Lease,
    at: Instant,
}

/// What a record allows.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Take(Taken),
    Wait,
}

impl Keeper {
    /// `identity` must be this process's alone.
    pub(crate) fn new(client: Client, namespace: &str, identity: String, metrics: Arc<Metrics>) -> (Self, Leadership) {
        let (until, receiver) = watch::channel(Instant::now());
        (Self { api: Api::namespaced(client, namespace), identity, metrics, until }, Leadership(receiver))
    }

    /// Waits until the Lease is ours and nobody else can still write.
    pub(crate) async fn acquire(&self) -> Lease {
        let mut seen: Option<Seen> = None;
        loop {
            match self.try_take(&mut seen).await {
                Ok(Some((lease, taken))) => return self.settle(lease, taken).await,
                Ok(None) => {}
                Err(error) => tracing::warn!("the Lease can't be asked for: {error}"),
            }
            sleep(seen.as_ref().map_or(ASK_EVERY, |seen| pause(&seen.lease, seen.at.elapsed()))).await;
        }
    }

    async fn try_take(&self, seen: &mut Option<Seen>) -> Result<Option<(Lease, Taken)>, kube::Error> {
        let Some(lease) = limited(self.api.get_opt(CONTROLLER)).await? else {
            // Who deleted it has not told the holder, which goes on until its next renewal.
            let taken = if seen.is_some() { Taken::Expired } else { Taken::Free };
            let lease = self.record(None);
            return self.write(self.api.create(&PostParams::default(), &lease)).await.map(|l| Some((l, taken)));
        };
        if seen.as_ref().is_none_or(|seen| seen.lease.metadata.resource_version != lease.metadata.resource_version) {
            *seen = Some(Seen { lease: lease.clone(), at: Instant::now() });
        }
        let age = seen.as_ref().map_or(Duration::ZERO, |seen| seen.at.elapsed());
        let Verdict::Take(taken) = judge(&lease, age, &self.identity) else { return Ok(None) };
        let next = self.record(Some(&lease));
        self.write(self.api.replace(CONTROLLER, &PostParams::default(), &next)).await.map(|l| Some((l, taken)))
    }

    /// The Lease counts from when the request was sent, not from when the answer came.
    async fn write(&self, request: impl Future<Output = Result<Lease, kube::Error>>) -> Result<Lease, kube::Error> {
        let sent = Instant::now();
        let answer = limited(request).await;
        self.metrics.renewed(&answer);
        let lease = answer?;
        self.until.send_replace(sent + Duration::from_secs(LEASE_SECONDS.unsigned_abs().into()));
        Ok(lease)
    }

    async fn settle(&self, mut lease: Lease, taken: Taken) -> Lease {
        tracing::info!(identity = self.identity, ?taken, "holding the Lease");
        let calm = Instant::now() + if taken == Taken::Expired { LEASE_GRACE } else { Duration::ZERO };
        while Instant::now() < calm {
            sleep(RENEW_EVERY.min(calm - Instant::now())).await;
            if let Ok(renewed) = self.renew(&lease).await {
                lease = renewed;
            }
        }
        lease
    }

    async fn renew(&self, lease: &Lease) -> Result<Lease, kube::Error> {
        let next = self.record(Some(lease));
        self.write(self.api.replace(CONTROLLER, &PostParams::default(), &next)).await
    }

    /// Renews until that fails for too long; the error then ends the process. `stop` gives the Lease back.
    pub(crate) async fn hold(&self, mut lease: Lease, stop: CancellationToken) -> anyhow::Result<()> {
        loop {
            tokio::select! {
                () = sleep(RENEW_EVERY) => {}
                () = stop.cancelled() => return self.release(lease).await,
            }
            match self.renew(&lease).await {
                Ok(renewed) => lease = renewed,
                Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => {
                    lease = self.look_again(lease, &status.message).await?;
                }
                Err(error) => tracing::warn!("the Lease can't be renewed: {error}"),
            }
            if Instant::now() >= *self.until.borrow() {
                bail!("the Lease was lost: it could not be renewed for {LEASE_SECONDS} s");
            }
        }
    }

    /// A renewal whose answer got lost makes the next one a conflict: what it wrote is ours. Errors: it is not.
    async fn look_again(&self, lease: Lease, why: &str) -> anyhow::Result<Lease> {
        match limited(self.api.get_opt(CONTROLLER)).await {
            Ok(Some(found)) if holder(&found) == self.identity => Ok(found),
            Ok(_) => bail!("the Lease was lost: {why}"),
            Err(error) => {
                tracing::warn!("the Lease can't be asked for: {error}");
                Ok(lease)
            }
        }
    }

    async fn release(&self, lease: Lease) -> anyhow::Result<()> {
        let mut next = lease;
        if let Some(spec) = &mut next.spec {
            spec.holder_identity = None;
        }
        limited(self.api.replace(CONTROLLER, &PostParams::default(), &next)).await?;
        tracing::info!("gave the Lease back");
        Ok(())
    }

    fn record(&self, before: Option<&Lease>) -> Lease {
        let old = before.and_then(|lease| lease.spec.clone()).unwrap_or_default();
        let ours = old.holder_identity.as_deref() == Some(self.identity.as_str());
        let now = MicroTime(Timestamp::now());
        Lease {
            metadata: before.map_or_else(
                || ObjectMeta { name: Some(CONTROLLER.to_owned()), ..ObjectMeta::default() },
                |lease| lease.metadata.clone(),
            ),
            spec: Some(LeaseSpec {
                holder_identity: Some(self.identity.clone()),
                lease_duration_seconds: Some(LEASE_SECONDS),
                acquire_time: if ours { old.acquire_time } else { Some(now.clone()) },
                renew_time: Some(now),
                lease_transitions: Some(old.lease_transitions.unwrap_or_default() + i32::from(!ours)),
                ..LeaseSpec::default()
            }),
        }
    }
}

/// Until it is worth asking again: the end of a Lease is not slept over.
fn pause(lease: &Lease, age: Duration) -> Duration {
    let left = term(lease).saturating_sub(age);
    if left.is_zero() { ASK_EVERY } else { ASK_EVERY.min(left + Duration::from_millis(1)) }
}

fn term(lease: &Lease) -> Duration {
    let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).unwrap_or(LEASE_SECONDS);
    Duration::from_secs(seconds.unsigned_abs().into())
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

/// `age`: how long the record has been seen unchanged.
fn judge(lease: &Lease, age: Duration, identity: &str) -> Verdict {
    match holder(lease) {
        "" => Verdict::Take(Taken::Free),
        // It was taken by a request whose answer got lost, from whom is not known any more.
        holder if holder == identity => Verdict::Take(Taken::Expired),
        _ if age > term(lease) => Verdict::Take(Taken::Expired),
        _ => Verdict::Wait,
    }
}

/// A request that hangs must not outlive the Lease.
async fn limited<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, kube::Error> {
    let late = |_| kube::Error::Service("no answer in time".into());
    timeout(WRITE_DEADLINE, request).await.map_err(late)?
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use kube::client::Body;
    use serde_json::json;

    use super::*;

    fn lease(holder: Option<&str>) -> Lease {
        let spec = LeaseSpec {
            holder_identity: holder.map(str::to_owned),
            lease_duration_seconds: Some(15),
            ..LeaseSpec::default()
        };
        Lease { spec: Some(spec), ..Lease::default() }
    }

    #[test]
    fn a_lease_given_back_is_taken_at_once() {
        assert_eq!(judge(&lease(None), Duration::ZERO, "b"), Verdict::Take(Taken::Free));
        assert_eq!(judge(&lease(Some("")), Duration::ZERO, "b"), Verdict::Take(Taken::Free));
    }

    #[test]
    fn a_holder_is_waited_for_as_long_as_its_record_says() {
        assert_eq!(judge(&lease(Some("a")), Duration::from_secs(15), "b"), Verdict::Wait);
        assert_eq!(judge(&lease(Some("a")), Duration::from_secs(16), "b"), Verdict::Take(Taken::Expired));
        assert_eq!(judge(&lease(Some("b")), Duration::ZERO, "b"), Verdict::Take(Taken::Expired));
    }

    /// A keeper called `b`, and an API server that has this Lease and refuses to change it.
    fn keeper(found: Option<Lease>) -> Keeper {
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (status, body) = match (request.method(), &found) {
                (&http::Method::GET, Some(lease)) => (200, serde_json::to_value(lease).unwrap()),
                (&http::Method::GET, None) => (404, status(404, "NotFound")),
                (&http::Method::POST, _) => (201, serde_json::to_value(lease(Some("b"))).unwrap()),
                _ => (409, status(409, "Conflict")),
            };
            let body = Body::from(body.to_string().into_bytes());
            async move { Ok::<_, Infallible>(http::Response::builder().status(status).body(body).unwrap()) }
        });
        Keeper::new(Client::new(service, "s"), "s", "b".to_owned(), Arc::new(Metrics::new())).0
    }

    fn status(code: u16, reason: &str) -> serde_json::Value {
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": reason, "reason": reason, "code": code})
    }

    #[tokio::test(start_paused = true)]
    async fn a_conflict_with_its_own_renewal_does_not_end_a_holder() {
        let ending = async |found: Option<&str>| {
            let keeper = keeper(found.map(|holder| lease(Some(holder))));
            keeper.until.send_replace(Instant::now() + Duration::from_secs(3600));
            let holding = keeper.hold(lease(Some("b")), CancellationToken::new());
            timeout(3 * RENEW_EVERY, holding).await.map_err(drop).map(|ended| ended.unwrap_err().to_string())
        };
        assert_eq!(ending(Some("b")).await, Err(()), "it goes on");
        assert_eq!(ending(Some("a")).await, Ok("the Lease was lost: Conflict".to_owned()));
        assert_eq!(ending(None).await, Ok("the Lease was lost: Conflict".to_owned()));
    }

    #[tokio::test]
    async fn who_finds_the_lease_deleted_waits_for_its_holder() {
        let taken =
            async |mut seen: Option<Seen>| keeper(None).try_take(&mut seen).await.unwrap().map(|(_, taken)| taken);
        assert_eq!(taken(None).await, Some(Taken::Free));
        let seen = Seen { lease: lease(Some("a")), at: Instant::now() };
        assert_eq!(taken(Some(seen)).await, Some(Taken::Expired));
    }

    #[test]
    fn the_end_of_a_lease_is_not_slept_over() {
        let pause_at = |age| pause(&lease(Some("a")), Duration::from_millis(age));
        assert_eq!(pause_at(3000), ASK_EVERY);
        assert_eq!(pause_at(14_500), Duration::from_millis(501));
        assert_eq!(pause_at(16_000), ASK_EVERY);
    }

    #[test]
    fn no_write_starts_that_could_outlive_the_lease() {
        let (until, receiver) = watch::channel(Instant::now() + WRITE_DEADLINE + Duration::from_secs(1));
        let leadership = Leadership(receiver);
        assert!(leadership.may_write());
        until.send_replace(Instant::now() + WRITE_DEADLINE.saturating_sub(Duration::from_millis(100)));
        assert!(!leadership.may_write());
    }
}
