//! Both merges on the same streams, in numbers.

use super::machines::Model;
use super::play::Run;
use super::stock::stranded;
use super::stream::{LENGTH, Source};
use super::yardstick::{Quality, mean};
use numa_run::hint::policy::Policy;
use numa_run::request::Merge;
use std::fmt::Write;

/// The policies that are compared.
pub const POLICIES: [Policy; 3] = [Policy::SingleNumaNode, Policy::Restricted, Policy::BestEffort];

/// What came of one machine's streams under one policy.
#[derive(Debug)]
pub struct Comparison {
    /// The machine.
    pub model: &'static str,
    /// The policy.
    pub policy: Policy,
    /// By the kubelet's merge.
    pub kubelet: Outcome,
    /// By the relative merge.
    pub relative: Outcome,
    /// Streams of which the relative merge admitted more launches than the kubelet's.
    pub more: usize,
    /// Streams of which it admitted fewer.
    pub fewer: usize,
}

/// Means over all streams.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Launches before the first refusal.
    pub admitted: f64,
    /// Of the launches that both merges admitted.
    pub width: f64,
    /// Of the same.
    pub aligned_share: f64,
    /// Of the same.
    pub distance: f64,
    /// Devices at the first refusal.
    pub stranded: f64,
    /// All plans that are not known to be the best.
    pub unproven: usize,
    /// Streams of which nothing was refused.
    pub unrefused: usize,
}

/// Plays these streams by both merges.
pub fn compare(model: &Model, policy: Policy, seeds: std::ops::Range<u64>) -> Comparison {
    let source = Source::new(model, policy);
    let pairs: Vec<[Run; 2]> = seeds
        .map(|seed| {
            let launches = source.stream(seed);
            [Merge::Kubelet, Merge::Relative].map(|merge| Run::of(&model.machine, &launches, merge))
        })
        .collect();
    let better = |by: usize| pairs.iter().filter(|pair| pair[by].admitted.len() > pair[1 - by].admitted.len()).count();
    Comparison {
        model: model.name,
        policy,
        kubelet: Outcome::of(model, &pairs, 0),
        relative: Outcome::of(model, &pairs, 1),
        more: better(1),
        fewer: better(0),
    }
}

impl Outcome {
    fn of(model: &Model, pairs: &[[Run; 2]], by: usize) -> Outcome {
        let runs = || pairs.iter().map(move |pair| &pair[by]);
        let of_runs = |number: &dyn Fn(&Run) -> f64| mean(runs().map(number)).unwrap_or_default();
        let both = |pair: &[Run; 2]| pair[0].admitted.len().min(pair[1].admitted.len());
        let placed = || pairs.iter().flat_map(move |pair| &pair[by].admitted[..both(pair)]);
        let of_placed =
            |number: &dyn Fn(&Quality) -> Option<f64>| mean(placed().filter_map(number)).unwrap_or_default();
        Outcome {
            admitted: of_runs(&|run| run.admitted.len() as f64),
            width: of_placed(&|quality| Some(quality.width as f64)),
            aligned_share: of_placed(&|quality| Some(quality.aligned_share)),
            distance: of_placed(&|quality| quality.distance),
            stranded: of_runs(&|run| stranded(model, &run.holdings) as f64),
            unproven: runs().map(|run| run.unproven).sum(),
            unrefused: runs().filter(|run| run.admitted.len() == LENGTH).count(),
        }
    }
}

/// All of it, a line for each merge.
pub fn in_full(comparisons: &[Comparison]) -> String {
    let mut text = format!(
        "{:36}{:18}{:10}{:>9}{:>12}{:>7}{:>9}{:>10}{:>10}{:>10}{:>11}\n",
        "", "", "", "launches", "more/fewer", "width", "aligned", "distance", "stranded", "unproven", "unrefused"
    );
    for all in comparisons {
        let versus = format!("{}/{}", all.more, all.fewer);
        for (merge, versus, of) in [("kubelet", "", &all.kubelet), ("relative", versus.as_str(), &all.relative)] {
            let _ = writeln!(
                text,
                "{:36}{:18}{merge:10}{:9.1}{versus:>12}{:7.3}{:9.4}{:10.2}{:10.2}{:10}{:11}",
                all.model,
                all.policy.name(),
                of.admitted,
                of.width,
                of.aligned_share,
                of.distance,
                of.stranded,
                of.unproven,
                of.unrefused,
            );
        }
    }
    text
}

/// The head of the table in the README.
pub const HEAD: &str = "\
| kubelet → relative | `single-numa-node` admits | `restricted` admits | width | aligned share | distance | stranded |
|---|---|---|---|---|---|---|
";

/// The table in the README: how many launches the strict policies admit, and
/// how good the placements of `best-effort` are, where both merges end with the
/// same launches.
pub fn in_short(comparisons: &[Comparison]) -> String {
    let mut text = HEAD.to_owned();
    for of_model in comparisons.chunk_by(|a, b| a.model == b.model) {
        let [single, restricted, best] = of_model else { continue };
        let pair = |all: &Comparison, digits: usize, number: fn(&Outcome) -> f64| {
            format!("{:.digits$} → {:.digits$}", number(&all.kubelet), number(&all.relative))
        };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} |",
            single.model,
            pair(single, 1, |of| of.admitted),
            pair(restricted, 1, |of| of.admitted),
            pair(best, 2, |of| of.width),
            pair(best, 3, |of| of.aligned_share),
            pair(best, 1, |of| of.distance),
            pair(best, 1, |of| of.stranded),
        );
    }
    text
}
