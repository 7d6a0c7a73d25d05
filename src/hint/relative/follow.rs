//! Where amounts go: beside what they follow, as far as there is room.

use super::scaled::Number;

/// The share of an amount on each node: in proportion to `base`, as far as
/// there is `room`, the rest on the nearest nodes with room.
pub(super) fn follow<N: Number>(base: &[N], room: &[N], distance: &[Vec<N>], whole: &N) -> Vec<N> {
    let mut share: Vec<N> = base.iter().zip(room).map(|(base, room)| base.min(room).clone()).collect();
    let mut rest = whole.clone();
    share.iter().for_each(|share| rest -= share);
    if rest.is_zero() {
        return share;
    }
    for node in by_distance(base, distance) {
        let mut more = room[node].clone();
        more -= &share[node];
        let more = more.min(rest.clone());
        rest -= &more;
        share[node] += &more;
    }
    share
}

/// Nodes by their mean distance to a share, ties by id.
fn by_distance<N: Number>(base: &[N], distance: &[Vec<N>]) -> Vec<usize> {
    let far = |node: usize| {
        let mut sum = N::zero();
        base.iter().zip(&distance[node]).for_each(|(share, distance)| sum += share.clone() * distance);
        sum
    };
    let mut nodes: Vec<usize> = (0..base.len()).collect();
    nodes.sort_by_cached_key(|&node| far(node));
    nodes
}

/// What amounts follow where nothing is counted: from `start` on, nearest
/// first, as much as all of them have room for.
pub(super) fn common_share<N: Number>(start: usize, rooms: &[&[N]], distance: &[Vec<N>], whole: &N) -> Vec<N> {
    let mut nodes: Vec<usize> = (0..distance.len()).collect();
    nodes.sort_by_key(|&node| (node != start, distance[start][node].clone()));
    let mut rest = whole.clone();
    let mut share = vec![N::zero(); distance.len()];
    for node in nodes {
        let room = rooms.iter().map(|room| &room[node]).min().unwrap_or(whole);
        let part = room.min(&rest).clone();
        rest -= &part;
        share[node] = part;
    }
    share
}
