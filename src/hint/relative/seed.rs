//! Good placements that are quickly made, so that the search can leave most
//! others early; and all that is looked at where it has no time to finish.

use super::follow::{common_share, nearest_next};
use super::found::Head;
use super::scaled::{Number, Scaled};
use super::search::Search;
use super::span::{Row, Span};

/// Spans with no more splits than that are soon looked through.
const MANY_SPLITS: u64 = 100_000;

/// Offers some placements and, where there are many, the best of them changed
/// unit by unit for as long as that helps.
pub(super) fn plant<N: Number>(search: &mut Search<N>) {
    let (span, scaled) = (search.span, search.scaled);
    let mut best: Option<(Head<N>, Vec<Vec<u64>>)> = None;
    for base in bases(scaled, span) {
        let units: Vec<Vec<u64>> = span.rows.iter().map(|row| near(row, &base, &scaled.whole)).collect();
        let head = search.offer(&units);
        if best.as_ref().is_none_or(|(other, _)| head < *other) {
            best = Some((head, units));
        }
        if search.budget.is_spent() {
            return;
        }
    }
    if let Some((head, units)) = best.filter(|_| span.splits() > MANY_SPLITS) {
        climb(search, head, units);
    }
}

/// Shares to come near to: room for everything, filled from each node on, and
/// spread over all nodes.
fn bases<N: Number>(scaled: &Scaled<N>, span: &Span<N>) -> Vec<Vec<N>> {
    let rooms: Vec<Vec<N>> = (0..scaled.ranked.len())
        .map(|rank| span.nodes.iter().map(|&node| scaled.room[rank][node].clone()).collect())
        .collect();
    let rooms: Vec<&[N]> = rooms.iter().map(|room| &room[..]).collect();
    let orders = nearest_next(&span.distance).take(4);
    let mut bases: Vec<Vec<N>> = orders.map(|order| common_share(&order, &rooms, &scaled.whole)).collect();
    let nodes = N::fit(span.nodes.len() as u64);
    bases.push(vec![scaled.whole.clone() / &nodes; span.nodes.len()]);
    bases
}

/// Units of a row that come near to a share, within its limits.
fn near<N: Number>(row: &Row<N>, base: &[N], whole: &N) -> Vec<u64> {
    let wanted = |share: &N| (share.clone() / &row.unit).to_u64().unwrap_or(0);
    debug_assert!(base.iter().all(|share| share <= whole));
    let limits = row.low.iter().zip(&row.high);
    let mut units: Vec<u64> =
        base.iter().zip(limits).map(|(share, (low, high))| wanted(share).clamp(*low, *high)).collect();
    let given = units.iter().sum::<u64>();
    let mut missing = row.units.saturating_sub(given);
    let mut surplus = given.saturating_sub(row.units);
    let mut order: Vec<usize> = (0..base.len()).collect();
    order.sort_by(|&a, &b| base[b].cmp(&base[a]));
    for &node in &order {
        let more = missing.min(row.high[node] - units[node]);
        units[node] += more;
        missing -= more;
    }
    for &node in order.iter().rev() {
        let less = surplus.min(units[node] - row.low[node]);
        units[node] -= less;
        surplus -= less;
    }
    units
}

/// Moves units between nodes while the placement gets better.
fn climb<N: Number>(search: &mut Search<N>, mut head: Head<N>, mut units: Vec<Vec<u64>>) {
    let moves = moves(search.span);
    let mut since = 0;
    for &(row, from, to) in moves.iter().cycle() {
        if since == moves.len() || search.budget.is_spent() {
            return;
        }
        since += 1;
        let limits = &search.span.rows[row];
        let most = (units[row][from] - limits.low[from]).min(limits.high[to] - units[row][to]);
        for count in [most, most.div_ceil(2), 1] {
            let mut changed = units.clone();
            changed[row][from] -= count.min(most);
            changed[row][to] += count.min(most);
            if most > 0 {
                let other = search.offer(&changed);
                if other < head {
                    (head, units, since) = (other, changed, 0);
                    break;
                }
            }
        }
    }
}

fn moves<N: Number>(span: &Span<N>) -> Vec<(usize, usize, usize)> {
    let nodes = 0..span.nodes.len();
    let pairs: Vec<(usize, usize)> = nodes
        .clone()
        .flat_map(|from| nodes.clone().map(move |to| (from, to)))
        .filter(|(from, to)| from != to)
        .collect();
    (0..span.rows.len()).flat_map(|row| pairs.iter().map(move |&(from, to)| (row, from, to))).collect()
}
