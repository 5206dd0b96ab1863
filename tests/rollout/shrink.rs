//! From a run that breaks an invariant to the shortest one that still does.
use crate::{
    invariants::Invariant,
    mutants::Mutant,
    sim::{self, Muted, STEPS},
    story::Story,
};

/// The steps that have nothing to do with it: halves first, then ever smaller parts, then single steps.
pub fn needless_steps(seed: u64, mutant: Option<Mutant>, invariant: Invariant) -> Muted {
    let breaks = |muted: &Muted| {
        sim::run_without(muted, seed, mutant, Story::Untold).broken.is_some_and(|broken| broken.invariant == invariant)
    };
    let mut muted = Muted::new();
    let mut size = STEPS / 2;
    while size > 0 {
        for first in (0..STEPS).step_by(size) {
            let more: Muted = muted.iter().copied().chain(first..(first + size).min(STEPS)).collect();
            if more.len() > muted.len() && breaks(&more) {
                muted = more;
            }
        }
        size /= 2;
    }
    muted
}
