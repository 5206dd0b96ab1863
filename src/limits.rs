//! Every deadline, size and interval, in one table.
use std::time::Duration;

/// So many failed tries of an operation make its node count as failed, …
pub const TRIES: u32 = 3;
/// … or so much time since the first of them has failed.
pub const TRIAL: Duration = Duration::from_secs(300);
/// Pause between the tries of a node that does not count as failed yet.
pub const RETRY_SOON: Duration = Duration::from_secs(20);
/// First pause of a node that counts as failed; each is twice the one before, …
pub const RETRY_FIRST: Duration = Duration::from_secs(60);
/// … up to this.
pub const RETRY_MOST: Duration = Duration::from_secs(30 * 60);
/// A removal that found pods running asks again after this time; each pause is twice the one before, …
pub const IN_USE_FIRST: Duration = Duration::from_secs(30);
/// … up to this.
pub const IN_USE_MOST: Duration = Duration::from_secs(300);
/// A node whose kubelet does not report handlers (containerd 1.x) is looked at this often.
pub const CHECK_EVERY: Duration = Duration::from_secs(24 * 3600);
/// Pods are not watched: while one may have something to say that its Job does not, it is looked at this often.
pub const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// The first Job of a new Shim waits this long, so that Shims applied together share one restart.
pub const GATHER: Duration = Duration::from_secs(2);
/// A mark younger than this is believed although the kubelet does not report the handler yet; each repair in a row
/// doubles the time to the next, up to `RETRY_MOST`.
pub const HANDLER_GRACE: Duration = Duration::from_secs(60);
/// Repairs of a node that are further apart than this are not in a row.
pub const REPAIRS_APART: Duration = Duration::from_secs(24 * 3600);
/// Old revisions that are kept where the spec does not say.
pub const HISTORY: usize = 10;
/// Most entries of `status.problems`; the rest is counted.
pub const PROBLEMS: usize = 10;

/// A Job whose Pod never ran fails after this time, in seconds (`activeDeadlineSeconds`); longer than all of the
/// installer's own deadlines together.
pub const JOB_DEADLINE_SECONDS: i64 = 900;
/// What the installer has from SIGTERM to SIGKILL, in seconds.
pub const TERMINATION_GRACE_SECONDS: i64 = 120;

/// Largest artifact as downloaded, in bytes.
pub const ARTIFACT_BYTES: u64 = 512 << 20;
/// Largest content of an artifact, unpacked, in bytes.
pub const UNPACKED_BYTES: u64 = 1 << 30;
/// Download of one artifact, retries included.
pub const FETCH_DEADLINE: Duration = Duration::from_secs(180);
/// Everything that `fetch` does for one task.
pub const FETCH_ALL_DEADLINE: Duration = Duration::from_secs(300);
/// Tries of one download after 5xx or a broken transfer.
pub const FETCH_TRIES: u32 = 4;
/// Everything that `install` does before it restarts containerd.
pub const PREPARE_DEADLINE: Duration = Duration::from_secs(120);
/// Until containerd answers after a restart, with every handler.
pub const VERIFY_DEADLINE: Duration = Duration::from_secs(60);
/// For this long containerd must go on answering before a restart counts as good.
pub const STABLE_FOR: Duration = Duration::from_secs(3);
/// One run of a shim's or of containerd's binary.
pub const PROBE_DEADLINE: Duration = Duration::from_secs(20);
/// Wait for another installer's lock.
pub const LOCK_DEADLINE: Duration = Duration::from_secs(60);

/// The Lease: how long it is held, in seconds.
pub const LEASE_SECONDS: i32 = 15;
/// A new leader waits this much longer than the Lease before its first write, for writes of the old one under way.
pub const LEASE_GRACE: Duration = Duration::from_secs(10);
/// Deadline of one write of the controller.
pub const WRITE_DEADLINE: Duration = Duration::from_secs(5);
/// A pass is made at least this often.
pub const RESYNC: Duration = Duration::from_secs(300);
