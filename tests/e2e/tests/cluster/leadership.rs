//! The leader is lost in the middle of an upgrade: another one goes on in time, and never do two write.
use std::{collections::BTreeSet, time::Duration};

use anyhow::{Result, ensure};
use jiff::Timestamp;
use shim_cluster::audit::Offset;
use shim_e2e::{Leader, Packing, ShimManifest};

use crate::{
    requests::Requests,
    support::{ROLLOUT, Session, session},
};

/// From the loss of a leader to the first write of the next: 15 s for the Lease, 10 s of grace, the rest for asking.
const TAKEOVER: Duration = Duration::from_secs(30);

/// An upgrade whose leader was lost on the way.
struct Upgrade {
    session: Session,
    start: Offset,
    leader: Leader,
    lost: Timestamp,
}

impl Upgrade {
    /// Installs, and upgrades with two nodes at a time until both are under way; then `lose` does its work.
    fn without<T>(lose: impl FnOnce(&Leader) -> Result<T>) -> Result<(Self, T)> {
        let session = session();
        let artifacts = session.artifacts()?;
        session.roll_out(&ShimManifest::new("wasmi", "v1", &artifacts.build(1, Packing::TarGz)?))?;
        let (leader, start) = (session.leader()?, session.cluster.audit().end()?);
        session.apply(&ShimManifest::new("wasmi", "v2", &artifacts.build(2, Packing::TarGz)?).at_a_time(2).text())?;
        session.wait("two Jobs", ROLLOUT, || Ok((session.jobs()?.len() == 2).then_some(())))?;
        let lost = lose(&leader)?;
        let upgrade = Self { session, start, leader, lost: Timestamp::now() };
        upgrade.is_taken_over()?;
        Ok((upgrade, lost))
    }

    fn requests(&self) -> Result<Requests> {
        Requests::since(&self.session, self.start)
    }

    fn is_taken_over(&self) -> Result<()> {
        let first = self.session.wait("the next leader's first write", TAKEOVER * 2, || {
            Ok(self.requests()?.writes().find(|event| event.time > self.lost).map(|event| event.time))
        })?;
        let took = Duration::try_from(first.duration_since(self.lost))?;
        println!("taken over after {:.1} s", took.as_secs_f64());
        ensure!(took <= TAKEOVER, "the next leader's first write came after {} s", took.as_secs());
        Ok(())
    }

    /// The rollout ends as if nothing had happened: the budget held, and no node was touched twice.
    fn ends_well(self) -> Result<()> {
        self.session.wait_ready("wasmi")?;
        let requests = self.requests()?;
        ensure!(requests.most_jobs_at_once() == 2, "{} nodes at once", requests.most_jobs_at_once());
        let jobs = requests.jobs();
        let nodes: BTreeSet<_> = jobs.iter().map(|(_, node)| node).collect();
        ensure!(jobs.len() == 4 && nodes.len() == 4, "{} Jobs on {} nodes", jobs.len(), nodes.len());
        self.session.hello_everywhere("wasmi")?;
        // Its container has been restarted, and would be kept waiting longer each time.
        self.session.cluster.kubectl(&["-n", "shim-system", "delete", "pod", &self.leader.pod, "--wait=false"])?;
        self.session.remove_and_compare(&["wasmi"])
    }

    /// The old leader's process has ended, and nothing that it wrote after it was lost was accepted.
    fn old_leader_is_out(&self) -> Result<()> {
        let pod = &self.leader.pod;
        self.session.wait("the end of the old leader's process", Duration::from_secs(60), || {
            let pods = self.session.list(&[
                "pods",
                "-n",
                "shim-system",
                "--field-selector",
                &format!("metadata.name={pod}"),
            ])?;
            let restarts = pods.first().and_then(|pod| pod["status"]["containerStatuses"][0]["restartCount"].as_u64());
            Ok((restarts > Some(0)).then_some(()))
        })?;
        let said = self.session.cluster.kubectl(&["-n", "shim-system", "logs", pod, "--previous", "--tail=2"])?;
        println!("the old leader's last words: {}", said.trim());
        let requests = self.requests()?;
        let late: Vec<_> = requests.writes().filter(|event| event.time > self.lost && event.pod == *pod).collect();
        ensure!(late.is_empty(), "the old leader wrote: {late:?}");
        Ok(())
    }
}

#[test]
fn a_leader_that_is_killed_is_followed_by_another() -> Result<()> {
    let (upgrade, ()) = Upgrade::without(Leader::kill)?;
    upgrade.ends_well()
}

#[test]
fn a_leader_that_was_suspended_does_not_write_when_it_wakes_up() -> Result<()> {
    let (upgrade, ()) = Upgrade::without(Leader::stop)?;
    upgrade.leader.go_on()?;
    upgrade.old_leader_is_out()?;
    upgrade.ends_well()
}

#[test]
fn a_leader_that_is_cut_off_ends_and_does_not_write_when_the_network_is_back() -> Result<()> {
    let (upgrade, cut) = Upgrade::without(Leader::cut_off)?;
    drop(cut);
    upgrade.old_leader_is_out()?;
    upgrade.ends_well()
}
