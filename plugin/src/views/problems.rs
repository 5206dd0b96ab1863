//! Why a Shim is not as it should be, at once: node, step, reason, message, last log line, and what to do next.
use shim_core::{api::Problem, status::nodes, world::Life};

use super::{Screen, ShimPicture, age, one_line};
use crate::next::Next;

/// One Shim's trouble.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// A few lines.
    pub text: String,
    /// What helps.
    pub next: Vec<Next>,
}

/// The trouble of each Shim that has some. A rollout on its way is none, and neither is a node that can't be served.
pub fn troubles(shims: &[&ShimPicture], screen: &Screen) -> Vec<Trouble> {
    shims.iter().filter_map(|shim| trouble(shim, screen)).collect()
}

fn trouble(shim: &ShimPicture, screen: &Screen) -> Option<Trouble> {
    let is_wrong = |problem: &&Problem| problem.state != "Skipped";
    let wrong: Vec<_> = shim.status.problems.iter().filter(is_wrong).collect();
    if shim.is("Ready") || (wrong.is_empty() && !shim.is("Stalled") && shim.state() != "Paused") {
        return None;
    }
    let failed = shim.status.nodes_failed;
    let title = match (failed, wrong.first()) {
        (0, None) => format!(": {}: {}", shim.state(), shim.message()),
        (0, Some(_)) => format!(": {}", shim.state()),
        (failed, _) if shim.is("Stalled") => format!(" stopped: {}", of_wanted(failed, shim)),
        (failed, _) => format!(": {}", of_wanted(failed, shim)),
    };
    let worst = wrong.first().map(|problem| lines(problem, screen)).unwrap_or_default();
    let more = match wrong.len() {
        0 | 1 => String::new(),
        2 => "  … 1 more node with problems\n".to_owned(),
        many => format!("  … {} more nodes with problems\n", many - 1),
    };
    let text = format!("{}\n{worst}{more}", one_line(&format!("{}{title}", shim.name)));
    Some(Trouble { text, next: next(shim, wrong.first().copied()) })
}

fn of_wanted(failed: u32, shim: &ShimPicture) -> String {
    format!("{failed} of {} failed", nodes(shim.wanted() as usize))
}

fn lines(problem: &Problem, screen: &Screen) -> String {
    let step = problem.step.as_ref().map(|step| format!("  {step}")).unwrap_or_default();
    let line = format!("{}{step}  {}: {}{}", problem.node, problem.reason, problem.message, tries(problem, screen));
    let last = problem.log.lines().rev().find(|line| !line.trim().is_empty());
    let log = last.map(|line| format!("  log: {}\n", one_line(line))).unwrap_or_default();
    // Two blanks between the parts, which cleaning as a whole would take.
    let line = line.split("  ").map(one_line).collect::<Vec<_>>().join("  ");
    format!("  {line}\n{log}")
}

fn tries(problem: &Problem, screen: &Screen) -> String {
    let since = problem.since.as_ref().and_then(|time| time.parse().ok());
    match (problem.attempts, since) {
        (0, _) => String::new(),
        (attempt, Some(since)) => format!(" (attempt {attempt}, {} ago)", age(since, screen.now)),
        (attempt, None) => format!(" (attempt {attempt})"),
    }
}

fn next(shim: &ShimPicture, worst: Option<&Problem>) -> Vec<Next> {
    // Its screen needs the right to list nodes.
    let of_node = worst.filter(|_| shim.rows.is_some()).map(|problem| Next::node(&problem.node));
    let in_use = worst.filter(|problem| problem.reason == "InUse").map(|problem| {
        let node = format!("spec.nodeName={}", problem.node);
        Next::kubectl(["get", "pods", "--all-namespaces", "--field-selector", &node])
    });
    let whole = Next::status_of(&shim.name);
    let is_paused = shim.state() == "Paused" || (shim.rollout.paused && shim.is("Stalled"));
    let resume = is_paused.then(|| Next::resume(&shim.name));
    let cures = if shim.is("Stalled") && shim.state() == "Failed" { cures(shim, worst) } else { Vec::new() };
    in_use.into_iter().chain(resume).chain(cures).chain(of_node).chain([whole]).collect()
}

/// What gets a rollout going that has stopped: the same once more, or what was there before.
fn cures(shim: &ShimPicture, worst: Option<&Problem>) -> Vec<Next> {
    let retry = match worst.filter(|problem| problem.state == "Failed") {
        Some(problem) => Next::retry_node(&shim.name, &problem.node),
        None => Next::retry(&shim.name),
    };
    let has_past = shim.life == Life::Active && shim.status.revision.as_ref().is_some_and(|current| current.number > 1);
    [retry].into_iter().chain(has_past.then(|| Next::rollback(&shim.name))).collect()
}
