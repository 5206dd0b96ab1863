//! Waiting and watching: one line per change, a heartbeat, and an end by itself.
use std::{pin::pin, time::Duration};

use futures_util::{Stream, StreamExt as _};
use kube::runtime::{WatchStreamExt as _, watcher};
use shim_core::world::Life;
use tokio::time::{Instant, sleep, sleep_until};

use super::{
    App,
    reach::{Reach, reach},
};
use crate::{
    cli::{goal::Goal, values::StatusFormat},
    cluster::{Cluster, Controller},
    exit::{Exit, Failure},
    interrupt::Interrupt,
    next::Next,
    output,
    views::{self, Picture, ShimPicture, Tracker},
};

/// Silence after which something is said.
const HEARTBEAT: Duration = Duration::from_secs(30);
/// Changes within this time make one look.
const GATHER: Duration = Duration::from_secs(1);
/// So long the controller has to show that it is there.
const PATIENCE: Duration = Duration::from_secs(5);
/// So long without an answer of the API server, and watching has no sense any more.
const OUTAGE: Duration = Duration::from_mins(5);

/// Where the lines go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Voice {
    /// They were asked for: standard output, in this format.
    Asked(StatusFormat),
    /// They are progress: standard error.
    Aside,
}

/// What is followed.
pub struct Follow {
    /// Names of Shims; empty: all.
    pub names: Vec<String>,
    /// The end.
    pub goal: Goal,
    /// The end in any case; zero or none: never.
    pub timeout: Option<Duration>,
    /// Where the lines go.
    pub voice: Voice,
}

/// Follows until the end.
pub async fn follow(app: &App<'_>, cluster: &Cluster, what: Follow) -> Result<Exit, Failure> {
    let deadline = what.timeout.filter(|time| !time.is_zero()).map(|time| Instant::now() + time);
    let mut changes = pin!(watcher(cluster.shims(), watcher::Config::default()).default_backoff());
    let mut interrupt =
        Interrupt::listen().map_err(|error| Failure::error(format!("Ctrl-C can't be heard: {error}")))?;
    let mut follower = Follower::new(app, cluster, what);
    loop {
        if let Some(exit) = follower.look().await? {
            return Ok(exit);
        }
        let wake = follower.wake();
        tokio::select! {
            () = change(&mut changes) => {}
            () = sleep_until(wake) => {}
            () = passed(deadline) => return Err(follower.timed_out()),
            () = interrupt.heard() => return Ok(follower.interrupted()),
        }
    }
}

async fn passed(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// The next change of a Shim. A watch that breaks is taken up again by the watcher; nothing is said about it, because
/// the look that follows says whether the server answers.
async fn change<T>(changes: &mut (impl Stream<Item = Result<T, watcher::Error>> + Unpin)) {
    loop {
        match changes.next().await {
            Some(Ok(_)) => return sleep(GATHER).await,
            Some(Err(_)) => {}
            None => return std::future::pending().await,
        }
    }
}

struct Follower<'a> {
    app: &'a App<'a>,
    cluster: &'a Cluster,
    what: Follow,
    tracker: Tracker,
    picture: Option<Picture>,
    /// Life of each Shim when it was seen first.
    seen: Vec<(String, Life)>,
    document: String,
    started: Instant,
    spoke: Instant,
    doubt: Doubt,
    silent_since: Option<Instant>,
}

/// Whether it was checked that a controller is there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Doubt {
    Open,
    Settled,
}

impl<'a> Follower<'a> {
    fn new(app: &'a App<'a>, cluster: &'a Cluster, what: Follow) -> Self {
        let now = Instant::now();
        Self {
            app,
            cluster,
            what,
            tracker: Tracker::default(),
            picture: None,
            seen: Vec::new(),
            document: String::new(),
            started: now,
            spoke: now,
            doubt: Doubt::Open,
            silent_since: None,
        }
    }

    fn wake(&self) -> Instant {
        let heartbeat = self.spoke + HEARTBEAT;
        if self.doubt == Doubt::Open { heartbeat.min(self.started + PATIENCE) } else { heartbeat }
    }

    /// Reads everything, says what is new, and knows whether that is the end.
    async fn look(&mut self) -> Result<Option<Exit>, Failure> {
        match self.cluster.snapshot().await {
            Ok(snapshot) => self.picture = Some(Picture::of(&snapshot)),
            Err(failure) => return self.outage(failure).await,
        }
        self.silent_since = None;
        let picture =
            self.picture.take().unwrap_or_else(|| Picture { shims: Vec::new(), nodes: Vec::new(), denied: Vec::new() });
        let result = self.judge(&picture).await;
        self.picture = Some(picture);
        result
    }

    async fn judge(&mut self, picture: &Picture) -> Result<Option<Exit>, Failure> {
        let shims = self.chosen(picture);
        self.remember(&shims)?;
        self.say(&shims)?;
        if self.app.console.is_closed() {
            return Ok(Some(Exit::Done));
        }
        if let Some(exit) = self.end(&shims) {
            if exit == Exit::Unhealthy {
                self.complain(&shims);
            }
            return Ok(Some(exit));
        }
        if self.doubt == Doubt::Open && self.started.elapsed() >= PATIENCE {
            return self.settle_doubt().await;
        }
        Ok(None)
    }

    /// Where there is no controller at all, nobody has to wait for one: it is a person who brings it.
    async fn settle_doubt(&mut self) -> Result<Option<Exit>, Failure> {
        self.doubt = Doubt::Settled;
        let controller = self.cluster.controller().await?;
        self.app.console.next(&told(self.app, self.cluster, &controller, &self.what.names, &self.what.goal));
        let in_vain = self.what.voice == Voice::Aside && controller == Controller::Missing;
        Ok(in_vain.then_some(Exit::Unhealthy))
    }

    /// An API server that is away for a moment ends no rollout, so it ends no watch either.
    async fn outage(&mut self, failure: Failure) -> Result<Option<Exit>, Failure> {
        let since = self.silent_since;
        if self.picture.is_none() || since.is_some_and(|since| since.elapsed() > OUTAGE) {
            return Err(failure);
        }
        if since.is_none() {
            self.silent_since = Some(Instant::now());
            self.app.console.warn(&format!("{}; trying again", failure.text));
        }
        sleep(PATIENCE).await;
        Ok(None)
    }

    fn chosen<'p>(&self, picture: &'p Picture) -> Vec<&'p ShimPicture> {
        let wanted = |shim: &&ShimPicture| self.what.names.is_empty() || self.what.names.contains(&shim.name);
        picture.shims.iter().filter(wanted).collect()
    }

    /// Notices Shims that are gone although they were not on their way out.
    fn remember(&mut self, shims: &[&ShimPicture]) -> Result<(), Failure> {
        let there = |name: &str| shims.iter().any(|shim| shim.name == name);
        if self.what.goal != Goal::Gone {
            if let Some(name) =
                self.what.names.iter().find(|name| !there(name) && !self.seen.iter().any(|(seen, _)| seen == *name))
            {
                return Err(super::not_found(name));
            }
            if let Some((name, _)) = self.seen.iter().find(|(name, life)| *life == Life::Active && !there(name)) {
                return Err(Failure::error(format!("shim {name:?} was deleted meanwhile")));
            }
        }
        for shim in shims {
            if !self.seen.iter().any(|(name, _)| *name == shim.name) {
                self.seen.push((shim.name.clone(), shim.life));
            }
        }
        Ok(())
    }

    fn say(&mut self, shims: &[&ShimPicture]) -> Result<(), Failure> {
        let Voice::Asked(format @ (StatusFormat::Json | StatusFormat::Yaml)) = self.what.voice else {
            return self.say_lines(shims);
        };
        let list = views::list(shims, None);
        let document = match format {
            StatusFormat::Json => serde_json::to_string(&list).map_err(Failure::error)? + "\n",
            _ => format!("---\n{}", output::yaml(&list)?),
        };
        if document != self.document {
            self.app.console.print(&document)?;
            self.document = document;
        }
        Ok(())
    }

    fn say_lines(&mut self, shims: &[&ShimPicture]) -> Result<(), Failure> {
        let mut lines = self.tracker.observe(shims);
        if lines.is_empty() && self.spoke.elapsed() >= HEARTBEAT {
            lines.push(views::heartbeat(shims));
        }
        for line in lines {
            self.spoke = Instant::now();
            match self.what.voice {
                Voice::Aside => self.app.console.event_aside(&line),
                Voice::Asked(_) => self.app.console.event(&line)?,
            }
        }
        Ok(())
    }

    /// Whoever waits is told at once that it is in vain; whoever watches, or waits for removals, sees all to their end.
    fn end(&self, shims: &[&ShimPicture]) -> Option<Exit> {
        let reaches: Vec<_> = shims.iter().map(|shim| reach(&self.what.goal, shim)).collect();
        let at_once = self.what.voice == Voice::Aside && self.what.goal != Goal::Gone;
        let in_vain = reaches.iter().any(|reach| matches!(reach, Reach::Never(_)));
        // Also where no Shim is left.
        if reaches.iter().all(|reach| *reach == Reach::Yes) {
            return Some(Exit::Done);
        }
        (in_vain && (at_once || !reaches.contains(&Reach::Open))).then_some(Exit::Unhealthy)
    }

    fn complain(&self, shims: &[&ShimPicture]) {
        for shim in shims {
            if let Reach::Never(Some(why)) = reach(&self.what.goal, shim) {
                self.app.console.note(&format!("error: {why}"));
            }
        }
        for trouble in views::troubles(shims, &self.app.console.side_screen()) {
            self.app.console.note(&trouble.text);
            self.app.console.next(&trouble.next);
        }
    }

    fn timed_out(&self) -> Failure {
        let shims = self.picture.as_ref().map(|picture| self.chosen(picture)).unwrap_or_default();
        self.complain(&shims);
        let states: Vec<_> =
            shims.iter().map(|shim| format!("{}: {}", shim.name, views::one_line(shim.message()))).collect();
        let time = self.what.timeout.unwrap_or_default();
        let failure = Failure {
            exit: Exit::Timeout,
            ..Failure::error(format!("not done after {time:?}: {}", states.join("; ")))
        };
        failure.then(self.again())
    }

    fn interrupted(&self) -> Exit {
        self.app.console.note("Stopped watching; the rollout continues.");
        self.app.console.next(&[self.again()]);
        Exit::Interrupted
    }

    fn again(&self) -> Next {
        match self.what.names.as_slice() {
            [name] => Next::watch(name),
            _ => Next::status(),
        }
    }
}

/// Says so if nobody works on the Shims, and knows what helps.
pub async fn doubt_controller(
    app: &App<'_>,
    cluster: &Cluster,
    names: &[String],
    goal: &Goal,
) -> Result<Vec<Next>, Failure> {
    Ok(told(app, cluster, &cluster.controller().await?, names, goal))
}

fn told(app: &App<'_>, cluster: &Cluster, controller: &Controller, names: &[String], goal: &Goal) -> Vec<Next> {
    let namespace = &cluster.namespace;
    let mut next = match controller {
        Controller::Available { .. } | Controller::Unknown => return Vec::new(),
        Controller::Missing => {
            let text = format!("there is no controller in namespace {namespace}; nothing happens until there is one");
            app.console.warn(&text);
            vec![Next::init()]
        }
        Controller::Unavailable => {
            let text = format!("the controller in namespace {namespace} is not running; nothing happens until it is");
            app.console.warn(&text);
            vec![Next::kubectl(["get", "pods", "--namespace", namespace])]
        }
    };
    next.extend(names.first().filter(|_| *goal == Goal::Gone).map(|name| Next::orphan(name)));
    next
}
