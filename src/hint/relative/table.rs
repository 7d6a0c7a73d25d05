//! All placements of the CPUs with the amounts that follow them. How far apart
//! these are among themselves is the same whatever else is placed: where the
//! CPUs come last, and again for each placement of the devices, that is worked
//! out once.

use super::found::Frame;
use super::scaled::Number;
use super::search::Search;
use super::span::{Base, Row};
use super::trail::Trail;
use std::cmp::{Ordering, Reverse};

/// A row with more ways to place it is not written down.
const MOST: u64 = 300_000;

/// Placements in the order in which the search looks at them.
pub(super) struct Table {
    nodes: usize,
    /// Units of the row.
    units: Vec<u64>,
    /// Shares of the row and what follows it, on each node together.
    shares: Vec<i64>,
    /// How far apart they are.
    apart: Vec<i64>,
}

/// Whether the last row is written down.
#[derive(Default)]
pub(super) enum Written {
    /// It has not been looked at yet.
    #[default]
    Never,
    /// Once, or it is not worth it.
    Once,
    Table(Table),
}

impl Table {
    /// None where nothing follows the row, or there are too many placements.
    fn new<N: Number>(search: &Search<N>) -> Option<Table> {
        let (span, limits) = (search.span, search.limits);
        let (nodes, last) = (span.nodes.len(), span.rows.len() - 1);
        let follows = matches!(span.base, Base::Cpus(row) if row == last) && !span.followers.is_empty();
        if !follows || span.rows[last].ways(MOST) > MOST {
            return None;
        }
        let alone = (0, vec![0; nodes]);
        let trail = Trail::new(span, limits, last, alone, |_, _, _| 0);
        if !trail.is_exact() {
            return None;
        }
        let mut table = Table { nodes, units: Vec::new(), shares: Vec::new(), apart: Vec::new() };
        table.fill(search, trail);
        Some(table)
    }

    fn fill<N: Number>(&mut self, search: &Search<N>, mut trail: Trail) {
        let (nodes, last) = (self.nodes, search.span.rows.len() - 1);
        let row = &search.span.rows[last];
        let mut units: Vec<u64> = Vec::with_capacity(nodes);
        let mut rest = row.units;
        // A walk over all placements, the most units on the lowest ids first.
        loop {
            while units.len() < nodes {
                let node = units.len();
                let count = *row.range(node, rest).end();
                trail.place(node, count, search.limits.share(last, count));
                units.push(count);
                rest -= count;
            }
            self.units.extend(&units);
            self.apart.push(trail.whole(&mut self.shares));
            search.budget.spend(trail.size() as u64 / 2 + 60);
            rest += units.pop().unwrap_or(0);
            // The last node that can do with less.
            loop {
                let Some(count) = units.pop() else { return };
                rest += count;
                let node = units.len();
                if count > *row.range(node, rest).start() {
                    trail.place(node, count - 1, search.limits.share(last, count - 1));
                    units.push(count - 1);
                    rest -= count - 1;
                    break;
                }
            }
        }
    }

    fn len(&self) -> usize {
        self.apart.len()
    }

    fn units(&self, at: usize) -> &[u64] {
        &self.units[at * self.nodes..][..self.nodes]
    }

    /// How far apart everything is where a share costs so much on each node.
    fn apart(&self, at: usize, cost: &[i64]) -> i64 {
        let shares = &self.shares[at * self.nodes..][..self.nodes];
        self.apart[at] + shares.iter().zip(cost).map(|(share, cost)| share * cost).sum::<i64>()
    }
}

impl<N: Number> Search<'_, N> {
    /// Looks at the last row by a table, where that is worth it.
    pub fn by_table(&mut self, row: usize, frame: &Frame<N>) -> bool {
        if row + 1 < self.span.rows.len() {
            return false;
        }
        self.written = match std::mem::take(&mut self.written) {
            Written::Never => {
                self.written = Written::Once;
                return false;
            }
            Written::Once => Table::new(self).map_or(Written::Once, Written::Table),
            table => table,
        };
        let Written::Table(table) = std::mem::take(&mut self.written) else {
            self.written = Written::Once;
            return false;
        };
        self.scan(&table, row, frame);
        self.written = Written::Table(table);
        true
    }

    fn scan(&mut self, table: &Table, row: usize, frame: &Frame<N>) {
        let coarse = &self.limits.coarse;
        let level = self.limits.level(row, self.span.rows.len()..self.limits.parts.len(), frame, &self.scaled.whole);
        let cost: Vec<i64> = frame.cost.iter().map(|cost| coarse.share(cost)).collect();
        let before = coarse.apart(&frame.apart);
        for at in 0..table.len() {
            if at % 64 == 0 && !self.budget.spend(32 * table.nodes as u64) {
                return;
            }
            let apart = before + table.apart(at, &cost);
            let near = apart.cmp(&self.apart.saturating_add(coarse.slack));
            if near == Ordering::Greater && self.is_aligned_no_more(&level.ceiling, frame.uneven) {
                continue;
            }
            let units = table.units(at);
            if self.may_win_with(row, frame, (units, near), &level.cap) {
                let next = self.with(frame, row, units);
                self.charge(self.span.size() / 2);
                self.row(row + 1, &next);
            }
        }
    }

    /// No placement is aligned more than the best so far where so much can be.
    fn is_aligned_no_more(&self, ceiling: &N, uneven: bool) -> bool {
        let best = self.best.as_ref().map(|best| &best.head);
        best.is_some_and(|best| *ceiling <= best.aligned.0 && (uneven || !best.uneven))
    }

    fn may_win_with(&self, row: usize, frame: &Frame<N>, (units, near): (&[u64], Ordering), cap: &[N]) -> bool {
        let Some(best) = self.best.as_ref().map(|best| &best.head) else { return true };
        let at: &Row<N> = &self.span.rows[row];
        let mut aligned = N::zero();
        units.iter().zip(cap).for_each(|(&units, cap)| aligned += at.share(units).min(cap.clone()));
        let uneven = frame.uneven || units.contains(&0);
        match Reverse(aligned).cmp(&best.aligned).then(uneven.cmp(&best.uneven)) {
            Ordering::Equal if near == Ordering::Equal && self.limits.coarse.is_exact() => {
                self.tie_may_win(row, frame, units)
            }
            Ordering::Equal => near != Ordering::Greater,
            other => other == Ordering::Less,
        }
    }
}
