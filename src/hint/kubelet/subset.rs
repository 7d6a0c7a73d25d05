//! Masks of exactly so many nodes: the smallest as a number, or the closest.
//!
//! Nodes are decided from the highest down, leaving one out before taking it,
//! so masks come in the order of their numbers and the first is the smallest.

use super::TieBreak;
use super::budget::Budget;
use super::columns::Columns;

/// Units that the chosen nodes have to hold together.
pub(super) struct Floor {
    pub(super) wanted: u64,
    /// By candidate. Units near to several nodes count on each of them, so that
    /// the floor never refuses what fits; [`Choice::accept`] looks closer.
    pub(super) units: Vec<u64>,
}

/// What is asked of a mask. Nodes are positions among the candidates.
pub(super) struct Choice<'a> {
    pub(super) columns: &'a Columns,
    /// Columns to choose from, ascending.
    pub(super) candidates: &'a [usize],
    /// Positions that have to be chosen.
    pub(super) must: Vec<bool>,
    pub(super) floors: Vec<Floor>,
    /// True when floors and `must` say everything, so that a node with no less
    /// of anything can take another's place.
    pub(super) plain: bool,
}

/// The last word on a mask, given as positions in descending order; none when the budget ran out.
pub(super) type Accept<'a> = dyn FnMut(&[usize], &mut Budget) -> Option<bool> + 'a;

/// What a search came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Positions of the mask, descending.
    pub(super) mask: Option<Vec<usize>>,
    /// False when the search was cut short.
    pub(super) proven: bool,
}

impl Choice<'_> {
    /// No mask can be narrower than this: one floor alone asks for so many nodes.
    pub(super) fn least_width(&self) -> usize {
        let must = self.must.iter().filter(|&&must| must).count();
        let nodes = self.floors.iter().map(|floor| {
            let mut units = floor.units.clone();
            units.sort_unstable_by(|a, b| b.cmp(a));
            running(units.into_iter()).iter().take_while(|&&sum| sum < floor.wanted).count()
        });
        nodes.max().unwrap_or(0).max(must).max(1)
    }

    /// The smallest mask of this width as a number.
    pub(super) fn smallest(&self, width: usize, budget: &mut Budget, accept: &mut Accept) -> Found {
        let mut search = Search::new(self, width, TieBreak::Lowest, budget, accept);
        search.descend(self.candidates.len());
        Found { proven: !search.cut, mask: search.best }
    }

    /// The closest mask of the width of `start`, which is the smallest one that is accepted.
    pub(super) fn closest(&self, start: Vec<usize>, budget: &mut Budget, accept: &mut Accept) -> Found {
        let mut search = Search::new(self, start.len(), TieBreak::Closest, budget, accept);
        search.spread_of_best = search.spread(&start);
        search.best = Some(start);
        search.gather();
        search.descend(self.candidates.len());
        Found { proven: !search.cut, mask: search.best }
    }
}

struct Search<'a, 'b> {
    choice: &'a Choice<'a>,
    width: usize,
    tie: TieBreak,
    budget: &'a mut Budget,
    accept: &'a mut Accept<'b>,
    /// By floor, then by number of lowest candidates, then by number of nodes
    /// to take of these: the most units that they can add.
    most: Vec<Vec<Vec<u64>>>,
    /// By number of lowest candidates: how many of them must be chosen.
    musts: Vec<usize>,
    /// The smallest distance, both ways, between two candidates.
    nearest: u64,
    chosen: Vec<usize>,
    sums: Vec<u64>,
    /// By candidate: what it would add to the spread of the chosen ones.
    adds: Vec<u64>,
    chosen_spread: u64,
    best: Option<Vec<usize>>,
    spread_of_best: u64,
    /// True while a mask of the same spread and a smaller number than `best` may turn up.
    ties_count: bool,
    cut: bool,
}

impl<'a, 'b> Search<'a, 'b> {
    fn new(
        choice: &'a Choice<'a>,
        width: usize,
        tie: TieBreak,
        budget: &'a mut Budget,
        accept: &'a mut Accept<'b>,
    ) -> Self {
        let count = choice.candidates.len();
        let between = |a: usize, b: usize| choice.columns.between(choice.candidates[a], choice.candidates[b]);
        let pairs = (0..count).flat_map(|a| (0..a).map(move |b| (a, b)));
        let nearest = match tie {
            TieBreak::Lowest => 0,
            TieBreak::Closest => pairs.map(|(a, b)| between(a, b)).min().unwrap_or(0),
        };
        Search {
            most: choice.floors.iter().map(|floor| most(&floor.units, width)).collect(),
            musts: running(choice.must.iter().map(|&must| usize::from(must))),
            nearest,
            sums: vec![0; choice.floors.len()],
            adds: (0..count).map(|a| between(a, a)).collect(),
            chosen: Vec::new(),
            chosen_spread: 0,
            best: None,
            spread_of_best: 0,
            ties_count: false,
            cut: false,
            choice,
            width,
            tie,
            budget,
            accept,
        }
    }

    /// Looks at every mask that agrees with what is chosen among the candidates
    /// from `below` up.
    fn descend(&mut self, below: usize) {
        let cost = 1 + self.sums.len() + if self.tie == TieBreak::Closest { 2 * self.adds.len() } else { 0 };
        self.cut |= !self.budget.spend(cost);
        let left = self.width - self.chosen.len();
        if self.cut || !self.possible(below, left) {
            return;
        }
        if left == 0 {
            return self.arrive();
        }
        let next = below - 1;
        if !self.has_to_take(next) {
            self.descend(next);
        }
        if !self.finished() {
            self.take(next);
            self.descend(next);
            self.put_back(next);
        }
    }

    fn finished(&self) -> bool {
        self.cut || (self.tie == TieBreak::Lowest && self.best.is_some())
    }

    /// False when no mask below can do, or be better than the best so far.
    fn possible(&self, below: usize, left: usize) -> bool {
        let mut floors = self.choice.floors.iter().zip(&self.sums).zip(&self.most);
        left <= below
            && self.musts[below] <= left
            && floors.all(|((floor, sum), most)| sum + most[below][left] >= floor.wanted)
            && (self.tie == TieBreak::Lowest || self.may_be_closer(below, left))
    }

    fn may_be_closer(&self, below: usize, left: usize) -> bool {
        let Some(best) = &self.best else { return true };
        let mut adds = self.adds[..below].to_vec();
        if (1..below).contains(&left) {
            adds.select_nth_unstable(left - 1);
        }
        let pairs = (left * left.saturating_sub(1) / 2) as u64;
        let bound = self.chosen_spread + adds[..left].iter().sum::<u64>() + pairs * self.nearest;
        let above = best.iter().take_while(|&&position| position >= below);
        let smaller = self.ties_count && self.chosen.iter().le(above);
        bound < self.spread_of_best || (smaller && bound == self.spread_of_best)
    }

    /// A left out node may not have as much of everything as a chosen higher
    /// one: their exchange would be a smaller number.
    fn has_to_take(&self, position: usize) -> bool {
        let must = &self.choice.must;
        let instead_of = |&chosen: &usize| {
            !must[chosen] && self.choice.floors.iter().all(|floor| floor.units[position] >= floor.units[chosen])
        };
        let exchanged = self.tie == TieBreak::Lowest && self.choice.plain;
        must[position] || (exchanged && self.chosen.iter().any(instead_of))
    }

    fn take(&mut self, position: usize) {
        self.chosen.push(position);
        self.chosen_spread += self.adds[position];
        self.sums.iter_mut().zip(&self.choice.floors).for_each(|(sum, floor)| *sum += floor.units[position]);
        self.change_adds(position, |add, between| *add += between);
    }

    fn put_back(&mut self, position: usize) {
        self.change_adds(position, |add, between| *add -= between);
        self.sums.iter_mut().zip(&self.choice.floors).for_each(|(sum, floor)| *sum -= floor.units[position]);
        self.chosen_spread -= self.adds[position];
        self.chosen.pop();
    }

    /// The others come nearer or farther when a node is chosen or put back.
    fn change_adds(&mut self, position: usize, change: impl Fn(&mut u64, u64)) {
        if self.tie == TieBreak::Closest {
            let Choice { columns, candidates, .. } = self.choice;
            let others = self.adds.iter_mut().zip(*candidates).enumerate().filter(|&(other, _)| other != position);
            others.for_each(|(_, (add, &column))| change(add, columns.between(candidates[position], column)));
        }
    }

    /// A whole mask: keeps it if it is accepted.
    fn arrive(&mut self) {
        match (self.accept)(&self.chosen, self.budget) {
            Some(true) => {
                self.best = Some(self.chosen.clone());
                self.spread_of_best = self.chosen_spread;
                self.ties_count = false;
            }
            Some(false) => {}
            None => self.cut = true,
        }
    }

    /// Around each candidate the nearest others: good masks to begin with, so
    /// that most of the rest need not be looked at.
    fn gather(&mut self) {
        for seed in 0..self.choice.candidates.len() {
            let mask = self.around(seed);
            let spread = self.spread(&mask);
            let better = spread < self.spread_of_best && self.holds(&mask);
            if better
                && self.budget.spend(self.width * self.adds.len())
                && (self.accept)(&mask, self.budget) == Some(true)
            {
                self.best = Some(mask);
                self.spread_of_best = spread;
                self.ties_count = true;
            }
        }
    }

    fn around(&mut self, seed: usize) -> Vec<usize> {
        let must = &self.choice.must;
        let first = (0..must.len()).filter(|&position| must[position] || position == seed).take(self.width);
        first.collect::<Vec<_>>().into_iter().for_each(|position| self.take(position));
        while self.chosen.len() < self.width {
            let free = (0..self.adds.len()).filter(|position| !self.chosen.contains(position));
            let Some(nearest) = free.min_by_key(|&position| self.adds[position]) else { break };
            self.take(nearest);
        }
        let mut mask = self.chosen.clone();
        while let Some(&last) = self.chosen.last() {
            self.put_back(last);
        }
        mask.sort_unstable_by(|a, b| b.cmp(a));
        mask
    }

    fn holds(&self, mask: &[usize]) -> bool {
        let must = mask.iter().filter(|&&position| self.choice.must[position]).count();
        let held = |floor: &Floor| mask.iter().map(|&position| floor.units[position]).sum::<u64>() >= floor.wanted;
        must == *self.musts.last().unwrap_or(&0) && self.choice.floors.iter().all(held)
    }

    fn spread(&self, mask: &[usize]) -> u64 {
        let columns: Vec<usize> = mask.iter().map(|&position| self.choice.candidates[position]).collect();
        self.choice.columns.spread(&columns, self.tie)
    }
}

/// For each number of lowest candidates, and each number of nodes taken of
/// them up to `width`: the most units that these can have.
fn most(units: &[u64], width: usize) -> Vec<Vec<u64>> {
    let mut sorted: Vec<u64> = Vec::with_capacity(units.len());
    let table = units.iter().map(|&units| {
        let place = sorted.partition_point(|&other| other > units);
        sorted.insert(place, units);
        let mut sums = running(sorted.iter().take(width).copied());
        sums.resize(width + 1, *sums.last().unwrap_or(&0));
        sums
    });
    std::iter::once(vec![0; width + 1]).chain(table).collect()
}

/// The sums of the first 0, 1, 2 and so on.
fn running<T: Copy + Default + std::ops::Add<Output = T>>(numbers: impl Iterator<Item = T>) -> Vec<T> {
    let sums = numbers.scan(T::default(), |sum, number| {
        *sum = *sum + number;
        Some(*sum)
    });
    std::iter::once(T::default()).chain(sums).collect()
}
