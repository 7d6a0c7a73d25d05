//! Why a policy does not admit the best placement there is.

use super::Problem;

/// A refusal as data; words are for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// What is wrong with the placement.
    pub why: Why,
    /// The resource that is the reason, by its place in the problem; none where
    /// only all of them together are.
    pub resource: Option<usize>,
}

/// What is wrong with a placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It spans several nodes, and only one will do.
    SeveralNodes,
    /// It spans more nodes than an idle machine would need.
    Wider,
    /// The resource is not on every node that others are on.
    Uneven,
    /// Units of it are of unknown locality.
    Unknown,
}

/// The first resource of which some units are of unknown locality.
pub(super) fn unknown(problem: &Problem) -> Option<Refused> {
    let resource = problem.resources.iter().position(|resource| resource.unknown > 0)?;
    Some(Refused { why: Why::Unknown, resource: Some(resource) })
}

/// A span that is too wide, because of the first resource that by itself
/// needs more nodes than that.
pub(super) fn too_wide(problem: &Problem, ranked: &[usize], why: Why, most: usize) -> Refused {
    let needs = |&&at: &&usize| fewest(&problem.resources[at].free, problem.resources[at].units) > most;
    Refused { why, resource: ranked.iter().find(needs).copied() }
}

/// The resource that is on the fewest nodes of the span.
pub(super) fn uneven(x: &[Vec<u64>], ranked: &[usize]) -> Refused {
    let nodes = |&&at: &&usize| x[at].iter().filter(|units| **units > 0).count();
    Refused { why: Why::Uneven, resource: ranked.iter().min_by_key(nodes).copied() }
}

fn fewest(free: &[u64], units: u64) -> usize {
    let mut free = free.to_vec();
    free.sort_unstable_by(|a, b| b.cmp(a));
    let mut sum = 0_u64;
    let missing = |free: &&u64| {
        let missing = sum < units;
        sum = sum.saturating_add(**free);
        missing
    };
    free.iter().take_while(missing).count()
}
