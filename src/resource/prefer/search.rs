//! The best set of devices: all sets are looked at where they are few, else a
//! good one is found within a bound. Ties go to the first devices.

use super::Score;

/// Sets up to which all are looked at.
const ALL: u64 = 20_000;
/// First devices that are tried where they are not.
const STARTS: usize = 16;
/// Exchanges that are looked at, all starts together.
const EXCHANGES: usize = 400_000;

/// A choice of so many members from each group.
pub(super) struct Choice {
    groups: Vec<(Vec<usize>, usize)>,
    single: Vec<Score>,
    pairs: Vec<Score>,
}

impl Choice {
    /// `single` is what each device is worth, `pair` what two are worth together.
    pub(super) fn new(
        groups: Vec<(Vec<usize>, usize)>,
        single: Vec<Score>,
        pair: impl Fn(usize, usize) -> Score,
    ) -> Choice {
        let count = single.len();
        let both = (0..count * count).map(|at| (at / count, at % count));
        let pairs = both.map(|(a, b)| if a < b { pair(a, b) } else { Score::default() }).collect();
        Choice { groups, single, pairs }
    }

    fn pair(&self, a: usize, b: usize) -> Score {
        self.pairs[a.min(b) * self.single.len() + a.max(b)]
    }

    /// The best set, in the order of the groups.
    pub(super) fn best(&self) -> Vec<usize> {
        let sets = self.groups.iter().map(|(members, count)| sets(members.len() as u64, *count as u64));
        let sets = sets.fold(1u64, u64::saturating_mul);
        let mut best = if sets <= ALL { self.exhaustive() } else { self.bounded() };
        best.sort_unstable();
        best
    }

    fn exhaustive(&self) -> Vec<usize> {
        let mut search = Search { choice: self, chosen: Vec::new(), best: None };
        search.group(0, 0, 0, Score::default());
        search.best.map(|(_, set)| set).unwrap_or_default()
    }

    /// Greedy from several first devices, then exchanges that make it better.
    fn bounded(&self) -> Vec<usize> {
        let members: Vec<usize> =
            self.groups.iter().filter(|(_, count)| *count > 0).flat_map(|(members, _)| members.clone()).collect();
        // Spread over all, so that no part of the machine is left out.
        let step = members.len().div_ceil(STARTS).max(1);
        let mut left = EXCHANGES;
        let mut best: Option<(Score, Vec<usize>)> = None;
        for &first in members.iter().step_by(step) {
            let mut draft = Draft::new(self);
            draft.fill(first);
            draft.exchange(&mut left);
            let score = draft.score();
            if best.as_ref().is_none_or(|(known, _)| score > *known) {
                best = Some((score, draft.set()));
            }
        }
        best.map(|(_, set)| set).unwrap_or_default()
    }
}

/// Ways to take `count` of `all`, as far as they are countable here.
fn sets(all: u64, count: u64) -> u64 {
    let count = count.min(all.saturating_sub(count));
    (0..count).fold(1u64, |sets, at| sets.saturating_mul(all - at) / (at + 1)).max(1)
}

struct Search<'a> {
    choice: &'a Choice,
    chosen: Vec<usize>,
    best: Option<(Score, Vec<usize>)>,
}

impl Search<'_> {
    /// Takes `taken + 1`th and further members of a group, from a position on.
    fn group(&mut self, group: usize, from: usize, taken: usize, score: Score) {
        let choice = self.choice;
        let Some((members, count)) = choice.groups.get(group) else {
            if self.best.as_ref().is_none_or(|(best, _)| score > *best) {
                self.best = Some((score, self.chosen.clone()));
            }
            return;
        };
        if taken == *count {
            return self.group(group + 1, 0, 0, score);
        }
        for at in from..=members.len().saturating_sub(count - taken) {
            let Some(&member) = members.get(at) else { return };
            let pairs = self.chosen.iter().map(|&other| choice.pair(member, other));
            let more = pairs.fold(score.plus(choice.single[member]), Score::plus);
            self.chosen.push(member);
            self.group(group, at + 1, taken + 1, more);
            self.chosen.pop();
        }
    }
}

/// A set on the way.
struct Draft<'a> {
    choice: &'a Choice,
    inside: Vec<bool>,
    /// What each device is worth beside the set.
    gain: Vec<Score>,
}

impl<'a> Draft<'a> {
    fn new(choice: &'a Choice) -> Draft<'a> {
        Draft { choice, inside: vec![false; choice.single.len()], gain: choice.single.clone() }
    }

    fn take(&mut self, member: usize, inside: bool) {
        self.inside[member] = inside;
        for other in 0..self.gain.len() {
            if other != member {
                let pair = self.choice.pair(member, other);
                self.gain[other] = if inside { self.gain[other].plus(pair) } else { self.gain[other].minus(pair) };
            }
        }
    }

    fn fill(&mut self, first: usize) {
        self.take(first, true);
        for (members, count) in &self.choice.groups {
            let mut open = count - members.iter().filter(|&&member| self.inside[member]).count();
            while open > 0 {
                let outside = members.iter().copied().filter(|&member| !self.inside[member]);
                // The first of the best.
                let Some(next) = outside.rev().max_by_key(|&member| self.gain[member]) else { break };
                self.take(next, true);
                open -= 1;
            }
        }
    }

    /// Exchanges one device for another of its group while that is better.
    fn exchange(&mut self, left: &mut usize) {
        while let Some((out, into)) = self.better_pair(left) {
            self.take(out, false);
            self.take(into, true);
        }
    }

    fn better_pair(&self, left: &mut usize) -> Option<(usize, usize)> {
        for (members, _) in &self.choice.groups {
            for &out in members.iter().filter(|&&member| self.inside[member]) {
                for &into in members.iter().filter(|&&member| !self.inside[member]) {
                    *left = left.checked_sub(1)?;
                    let after = self.gain[into].minus(self.choice.pair(into, out));
                    if after > self.gain[out] {
                        return Some((out, into));
                    }
                }
            }
        }
        None
    }

    fn set(&self) -> Vec<usize> {
        (0..self.inside.len()).filter(|&member| self.inside[member]).collect()
    }

    fn score(&self) -> Score {
        let set = self.set();
        let pairs = set.iter().enumerate().flat_map(|(at, &a)| set[..at].iter().map(move |&b| self.choice.pair(a, b)));
        let single = set.iter().map(|&member| self.choice.single[member]);
        single.chain(pairs).fold(Score::default(), Score::plus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::prefer::{LINKS, SWITCH};

    /// Numbers that look random and are the same each time.
    fn noise(seed: &mut u64) -> u64 {
        *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        *seed >> 33
    }

    fn choice(groups: &[(usize, usize)], seed: &mut u64) -> Choice {
        let mut start = 0;
        let group = |&(size, count): &(usize, usize)| {
            start += size;
            ((start - size..start).collect::<Vec<_>>(), count)
        };
        let groups: Vec<(Vec<usize>, usize)> = groups.iter().map(group).collect();
        let single = (0..start).map(|_| Score::of(SWITCH, (noise(seed) % 5) as i64)).collect();
        let weights: Vec<i64> = (0..start * start).map(|_| (noise(seed) % 7) as i64).collect();
        Choice::new(groups, single, |a, b| Score::of(LINKS, weights[a * start + b]))
    }

    fn worth(choice: &Choice, set: &[usize]) -> Score {
        let pairs = set.iter().enumerate().flat_map(|(at, &a)| set[..at].iter().map(move |&b| choice.pair(a, b)));
        set.iter().map(|&member| choice.single[member]).chain(pairs).fold(Score::default(), Score::plus)
    }

    #[test]
    fn the_best_of_few_sets_is_found() {
        let mut seed = 7;
        for (first, second) in [(1, 0), (2, 2), (3, 1), (5, 4), (0, 2)] {
            let choice = choice(&[(5, first), (4, second)], &mut seed);
            let best = choice.best();
            assert_eq!(best.iter().filter(|&&member| member < 5).count(), first);
            assert_eq!(best.len(), first + second);
            // Each subset as a number.
            let fits =
                |set: &u32| (set & 31).count_ones() as usize == first && (set >> 5).count_ones() as usize == second;
            let sets = (0u32..512).filter(fits);
            let members = |set: u32| (0..9).filter(|at| set >> at & 1 == 1).collect::<Vec<usize>>();
            let most = sets.map(|set| worth(&choice, &members(set))).max().unwrap();
            assert_eq!(worth(&choice, &best), most);
        }
    }

    #[test]
    fn of_many_sets_one_is_found_that_no_exchange_makes_better_and_it_is_the_same_each_time() {
        let mut seed = 11;
        let choice = choice(&[(40, 12), (24, 7)], &mut seed);
        let best = choice.best();
        assert_eq!(best.iter().filter(|&&member| member < 40).count(), 12);
        assert_eq!(best.len(), 19);
        assert_eq!(choice.best(), best);
        for (at, &out) in best.iter().enumerate() {
            for into in (0..64).filter(|into| !best.contains(into) && (out < 40) == (*into < 40)) {
                let mut other = best.clone();
                other[at] = into;
                assert!(worth(&choice, &other) <= worth(&choice, &best));
            }
        }
    }

    #[test]
    fn ways_to_choose_are_counted_without_overflow() {
        assert_eq!([sets(16, 8), sets(8, 4), sets(5, 0), sets(5, 5), sets(0, 0)], [12870, 70, 1, 1, 1]);
        assert!(sets(256, 128) > ALL);
    }
}
