//! Sets of nodes that hold everything: which is the least width, and which
//! sets have it.

use std::cell::Cell;
use std::ops::ControlFlow;

/// Steps that a search may still take: the same on every machine, unlike time.
#[derive(Debug)]
pub(super) struct Budget {
    left: Cell<u64>,
    doubts: Cell<bool>,
}

impl Budget {
    pub fn new(steps: u64) -> Self {
        Budget { left: Cell::new(steps), doubts: Cell::new(false) }
    }

    /// False when there is nothing left; then it stays so.
    pub fn spend(&self, steps: u64) -> bool {
        self.left.set(self.left.get().saturating_sub(steps));
        !self.is_spent()
    }

    pub fn is_spent(&self) -> bool {
        self.left.get() == 0
    }

    /// Something was left undecided: what is found is not proven to be the best.
    pub fn doubt(&self) {
        self.doubts.set(true);
    }

    /// Everything was looked at.
    pub fn is_proof(&self) -> bool {
        !self.is_spent() && !self.doubts.get()
    }

    /// Runs something that may use at most one part in so many; that it used up
    /// its part does not count as spent.
    pub fn lend<T>(&self, parts: u64, run: impl FnOnce(&Budget) -> T) -> T {
        let part = Budget::new(self.left.get() / parts);
        self.left.set(self.left.get() - part.left.get());
        let result = run(&part);
        self.left.set(self.left.get() + part.left.get());
        self.doubts.set(self.doubts.get() || part.doubts.get());
        result
    }
}

/// What is wanted of each resource and what each of some nodes gives.
#[derive(Clone, Debug)]
pub(super) struct Cover {
    wanted: Vec<u128>,
    /// By resource and place.
    supply: Vec<Vec<u128>>,
    /// What each place stands for.
    nodes: Vec<usize>,
}

/// Whether a search found all there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// All sets were visited, or the visitor stopped.
    Complete,
    /// The budget was spent before.
    Cut,
}

impl Cover {
    /// `supply` by resource and node; only `nodes` are used, in that order.
    pub fn new(wanted: &[u64], supply: impl Fn(usize, usize) -> u64, nodes: Vec<usize>) -> Self {
        let row = |resource: usize| nodes.iter().map(|&node| u128::from(supply(resource, node))).collect();
        let supply = (0..wanted.len()).map(row).collect();
        Cover { wanted: wanted.iter().map(|&wanted| u128::from(wanted)).collect(), supply, nodes }
    }

    /// The same nodes in another order, or some of them; `order` gives places.
    fn turned(&self, order: &[usize]) -> Cover {
        let turn = |row: &Vec<u128>| order.iter().map(|&at| row[at]).collect();
        Cover {
            wanted: self.wanted.clone(),
            supply: self.supply.iter().map(turn).collect(),
            nodes: order.iter().map(|&at| self.nodes[at]).collect(),
        }
    }

    /// As few nodes as hold everything, ascending, and whether fewer certainly
    /// don't. All of them where even those don't.
    pub fn narrowest(&self, budget: &Budget) -> (Vec<usize>, bool) {
        let handy = self.turned(&self.most_useful_first());
        let mut proven = true;
        for width in self.fewest()..=self.nodes.len() {
            let (found, complete) = budget.lend(8, |part| {
                let mut found = None;
                let reach = handy.sets(width, part, &mut |set| {
                    found = Some(set.to_vec());
                    ControlFlow::Break(())
                });
                (found, reach == Reach::Complete)
            });
            if let Some(mut set) = found {
                set.sort_unstable();
                return (set, proven);
            }
            proven &= complete;
        }
        (self.nodes.clone(), proven)
    }

    /// No fewer could do: some resource by itself needs that many.
    fn fewest(&self) -> usize {
        let alone = |(wanted, row): (&u128, &Vec<u128>)| {
            let mut row = row.clone();
            row.sort_unstable_by(|a, b| b.cmp(a));
            let mut sum = 0;
            let missing = |supply: &&u128| {
                let missing = sum < *wanted;
                sum += **supply;
                missing
            };
            row.iter().take_while(missing).count()
        };
        self.wanted.iter().zip(&self.supply).map(alone).max().unwrap_or(0)
    }

    /// Places, those first that serve the most of everything.
    fn most_useful_first(&self) -> Vec<usize> {
        let part = |at: usize, wanted: u128, row: &[u128]| (row[at].min(wanted) << 32) / wanted.max(1);
        let use_of = |at: usize| self.wanted.iter().zip(&self.supply).map(|(w, row)| part(at, *w, row)).sum::<u128>();
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        order.sort_by_cached_key(|&at| std::cmp::Reverse(use_of(at)));
        order
    }

    /// One set of that width whose nodes come as early as possible in an order of nodes.
    pub fn first(&self, width: usize, order: &[usize], budget: &Budget) -> Option<Vec<usize>> {
        let places: Vec<usize> =
            order.iter().filter_map(|node| self.nodes.iter().position(|other| other == node)).collect();
        let mut found = None;
        self.turned(&places).sets(width, budget, &mut |set| {
            found = Some(set.to_vec());
            ControlFlow::Break(())
        });
        found
    }

    /// Visits the sets of that width that hold everything, in the order of the nodes.
    pub fn sets(&self, width: usize, budget: &Budget, visit: &mut dyn FnMut(&[usize]) -> ControlFlow<()>) -> Reach {
        if width > self.nodes.len() {
            return Reach::Complete;
        }
        // Only where the walk can come to: what it takes to look ahead is little where few nodes are left out.
        let looks = (self.nodes.len() + 1) * (self.nodes.len() - width + 1 + width / 4);
        if !budget.spend((looks * self.wanted.len() + 8 * self.nodes.len()) as u64) {
            return Reach::Cut;
        }
        let tops = Tops::new(self, width);
        let mut walk = Walk { cover: self, tops: &tops, budget, visit, set: Vec::with_capacity(width), cut: false };
        let _ = walk.from(0, width, &vec![0; self.wanted.len()]);
        if walk.cut { Reach::Cut } else { Reach::Complete }
    }
}

/// The most that so many nodes from a place on give of each resource, as far
/// as a walk over sets of that width can ask.
struct Tops {
    width: usize,
    resources: usize,
    /// Places that a set leaves out, and one.
    slots: usize,
    sums: Vec<u128>,
}

impl Tops {
    fn new(cover: &Cover, width: usize) -> Tops {
        let (nodes, resources) = (cover.nodes.len(), cover.wanted.len());
        let slots = nodes - width + 1;
        let mut tops = Tops { width, resources, slots, sums: vec![0; (nodes + 1) * slots * resources] };
        let mut best: Vec<u128> = Vec::with_capacity(width + 1);
        for (resource, row) in cover.supply.iter().enumerate() {
            best.clear();
            for place in (0..row.len()).rev() {
                let at = best.partition_point(|&other| other >= row[place]);
                best.insert(at, row[place]);
                best.truncate(width);
                // So many are missing here at least: the set has no more than one node for each place before.
                let least = width.saturating_sub(place);
                let mut sum: u128 = best.iter().take(least).sum();
                for count in least..=best.len() {
                    let index = tops.index(place, count);
                    tops.sums[index + resource] = sum;
                    sum += best.get(count).copied().unwrap_or(0);
                }
            }
        }
        tops
    }

    fn index(&self, place: usize, count: usize) -> usize {
        (place * self.slots + place + count - self.width) * self.resources
    }

    /// By resource.
    fn of(&self, place: usize, count: usize) -> &[u128] {
        &self.sums[self.index(place, count)..][..self.resources]
    }
}

/// A walk over sets, nodes ascending.
struct Walk<'a> {
    cover: &'a Cover,
    tops: &'a Tops,
    budget: &'a Budget,
    visit: &'a mut dyn FnMut(&[usize]) -> ControlFlow<()>,
    set: Vec<usize>,
    cut: bool,
}

impl Walk<'_> {
    /// `count` more nodes from that place on, `have` being what the set holds.
    fn from(&mut self, place: usize, count: usize, have: &[u128]) -> ControlFlow<()> {
        if count == 0 {
            return if self.enough(have, place, 0) { (self.visit)(&self.set) } else { ControlFlow::Continue(()) };
        }
        for at in place..=self.cover.nodes.len() - count {
            if !self.budget.spend(4 * self.cover.wanted.len() as u64 + 20) {
                self.cut = true;
                return ControlFlow::Break(());
            }
            if !self.enough(have, at, count) {
                break;
            }
            let with: Vec<u128> = have.iter().zip(&self.cover.supply).map(|(have, row)| have + row[at]).collect();
            if self.enough(&with, at + 1, count - 1) {
                self.set.push(self.cover.nodes[at]);
                self.from(at + 1, count - 1, &with)?;
                self.set.pop();
            }
        }
        ControlFlow::Continue(())
    }

    fn enough(&self, have: &[u128], place: usize, count: usize) -> bool {
        let more = self.tops.of(place, count);
        have.iter().zip(more).zip(&self.cover.wanted).all(|((have, more), wanted)| have + more >= *wanted)
    }
}
