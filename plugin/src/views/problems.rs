//! Why a Shim is not as it should be, at once: node, step, reason, message, last log line, and what to do next.
use shim_core::{api::Problem, status::nodes};

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
        (0, None) => format!("{}: {}", shim.state(), shim.message()),
        (0, Some(_)) => shim.state().to_owned(),
        (failed, _) => format!("{} failed", nodes(failed as usize)),
    };
    let worst = wrong.first().map(|problem| lines(problem, screen)).unwrap_or_default();
    let more = match wrong.len() {
        0 | 1 => String::new(),
        2 => "  … 1 more node with problems\n".to_owned(),
        many => format!("  … {} more nodes with problems\n", many - 1),
    };
    let text = format!("{}: {}\n{worst}{more}", shim.name, one_line(&title));
    Some(Trouble { text, next: next(shim, wrong.first().copied()) })
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
    let of_node = worst.map(|problem| Next::node(&problem.node));
    let in_use = worst.filter(|problem| problem.reason == "InUse").map(|problem| {
        let node = format!("spec.nodeName={}", problem.node);
        Next::kubectl(["get", "pods", "--all-namespaces", "--field-selector", &node])
    });
    let whole = Next::status_of(&shim.name);
    let unpause = (shim.state() == "Paused").then(|| Next::unpause(&shim.name));
    in_use.into_iter().chain(unpause).chain([whole]).chain(of_node).collect()
}
