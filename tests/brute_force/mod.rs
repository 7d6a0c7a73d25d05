//! The best placement by looking at every one, written from the rules and
//! sharing nothing with the solver but the types of the question.

use num_rational::Ratio;
use numa_run::hint::policy::Policy;
use numa_run::hint::relative::{Kind, Problem, Rating, Resource};
use std::cmp::Reverse;

pub type Fraction = Ratio<i128>;

/// What the order compares; the smaller the better.
pub type Key = (
    usize,
    bool,
    Fraction,
    bool,
    Fraction,
    Fraction,
    Fraction,
    Reverse<Rating>,
    Fraction,
    Fraction,
    Vec<u32>,
    Vec<Fraction>,
);

pub struct Best {
    pub key: Key,
    /// By resource and node.
    pub x: Vec<Vec<Fraction>>,
    pub rounded: Vec<Vec<u64>>,
}

fn int(number: u64) -> Fraction {
    Fraction::from_integer(number.into())
}

fn distance(problem: &Problem, a: usize, b: usize) -> Fraction {
    match problem.distances.is_empty() {
        true => int(if a == b { 20 } else { 40 }),
        false => int((problem.distances[a][b] + problem.distances[b][a]).into()),
    }
}

/// Resources that want something: cpu, devices by name, pages by name, memory.
fn order(problem: &Problem) -> Vec<usize> {
    let mut order = Vec::new();
    for kind in [Kind::Cpus, Kind::Devices, Kind::Pages, Kind::Memory] {
        let mut some: Vec<usize> = (0..problem.resources.len())
            .filter(|&r| problem.resources[r].kind == kind && problem.resources[r].units > 0)
            .collect();
        some.sort_by(|&a, &b| problem.resources[a].name.cmp(&problem.resources[b].name));
        order.extend(some);
    }
    order
}

fn amount(resource: &Resource) -> bool {
    resource.kind == Kind::Pages || resource.kind == Kind::Memory
}

/// The key of any placement, fractions of units allowed.
pub fn key(problem: &Problem, x: &[Vec<Fraction>]) -> Key {
    let order = order(problem);
    let zero = int(0);
    let nodes = problem.nodes.len();
    let span: Vec<usize> = (0..nodes).filter(|&n| order.iter().any(|&r| x[r][n] > zero)).collect();
    let share = |r: usize, n: usize| x[r][n] / int(problem.resources[r].units);
    let mut aligned = zero;
    for &n in &span {
        aligned += order.iter().map(|&r| share(r, n)).min().unwrap();
    }
    let uneven =
        order.iter().any(|&r| span.iter().any(|&n| x[r][n] == zero) || problem.resources[r].units < span.len() as u64);
    let between = |r: usize, s: usize| {
        let mut sum = zero;
        for &n in &span {
            for &m in &span {
                sum += share(r, n) * share(s, m) * distance(problem, n, m);
            }
        }
        sum
    };
    let mean = |pairs: Vec<(usize, usize)>| {
        let count = int(pairs.len().max(1) as u64);
        pairs.into_iter().fold(zero, |sum, (r, s)| sum + between(r, s)) / count
    };
    let mut all_pairs = Vec::new();
    let mut to_amounts = Vec::new();
    let mut same = Vec::new();
    for (place, &r) in order.iter().enumerate() {
        for &s in &order[place + 1..] {
            all_pairs.push((r, s));
            if problem.resources[r].kind == Kind::Cpus && amount(&problem.resources[s]) {
                to_amounts.push((r, s));
            }
        }
        if !amount(&problem.resources[r]) {
            same.push((r, r));
        }
    }
    let mut stranded = zero;
    for other in &problem.others {
        let all = other.free.iter().sum::<u64>() + other.elsewhere;
        if all > 0 {
            stranded += int(span.iter().map(|&n| other.free[n]).sum()) / int(all);
        }
    }
    let mut left = zero;
    for &r in &order {
        for &n in &span {
            let total = problem.resources[r].total[n];
            if total > 0 {
                left += (int(problem.resources[r].free[n]) - x[r][n]) / int(total);
            }
        }
    }
    let preference = problem.preference.map_or_else(Vec::new, |preference| {
        let counts: Vec<Vec<u64>> = (0..problem.resources.len())
            .map(|r| {
                (0..nodes)
                    .map(|n| if amount(&problem.resources[r]) { 0 } else { x[r][n].to_integer() as u64 })
                    .collect()
            })
            .collect();
        (preference.0)(&counts).unwrap()
    });
    let low_ids = order.iter().flat_map(|&r| (0..nodes).map(move |n| (r, n))).map(|(r, n)| -x[r][n]).collect();
    (
        span.len(),
        problem.policy == Policy::Restricted && uneven,
        -aligned,
        uneven,
        mean(all_pairs),
        mean(to_amounts),
        mean(same),
        Reverse(preference),
        stranded,
        left,
        span.iter().map(|&n| problem.nodes[n]).collect(),
        low_ids,
    )
}

/// Sets of nodes of a width, as lists.
fn sets(nodes: usize, width: usize) -> Vec<Vec<usize>> {
    (0..1_u32 << nodes)
        .filter(|bits| bits.count_ones() as usize == width)
        .map(|bits| (0..nodes).filter(|n| bits >> n & 1 == 1).collect())
        .collect()
}

/// The fewest nodes that hold everything.
pub fn width(problem: &Problem, held: impl Fn(&Resource, usize) -> u64) -> Option<usize> {
    let enough = |set: &Vec<usize>| {
        order(problem)
            .into_iter()
            .map(|r| &problem.resources[r])
            .all(|resource| set.iter().map(|&n| held(resource, n)).sum::<u64>() >= resource.units)
    };
    (0..=problem.nodes.len()).find(|&width| sets(problem.nodes.len(), width).iter().any(enough))
}

/// All ways to take so many units from what is free, by node of the set.
fn splits(free: &[u64], units: u64) -> Vec<Vec<u64>> {
    let Some((first, others)) = free.split_first() else {
        return if units == 0 { vec![Vec::new()] } else { Vec::new() };
    };
    let mut all = Vec::new();
    for here in 0..=units.min(*first) {
        for rest in splits(others, units - here) {
            all.push([vec![here], rest].concat());
        }
    }
    all
}

/// In proportion to `base` as far as there is room, the rest on the nearest with room.
fn follow(problem: &Problem, set: &[usize], base: &[Fraction], r: usize) -> Vec<Fraction> {
    let resource = &problem.resources[r];
    let mut x: Vec<Fraction> = Vec::new();
    for (place, &n) in set.iter().enumerate() {
        x.push((base[place] * int(resource.units)).min(int(resource.free[n])));
    }
    let mut near: Vec<usize> = (0..set.len()).collect();
    near.sort_by_key(|&place| {
        let mut far = int(0);
        for (other, &m) in set.iter().enumerate() {
            far += base[other] * distance(problem, set[place], m);
        }
        (far, set[place])
    });
    for place in near {
        let rest = int(resource.units) - x.iter().fold(int(0), |sum, x| sum + x);
        let room = int(resource.free[set[place]]) - x[place];
        x[place] += rest.min(room);
    }
    x
}

/// The shares that amounts may follow, given what is counted.
fn bases(problem: &Problem, set: &[usize], counted: &[(usize, Vec<u64>)], following: &[usize]) -> Vec<Vec<Fraction>> {
    let share = |(r, x): &(usize, Vec<u64>)| -> Vec<Fraction> {
        x.iter().map(|&x| int(x) / int(problem.resources[*r].units)).collect()
    };
    if let Some(cpus) = counted.iter().find(|(r, _)| problem.resources[*r].kind == Kind::Cpus) {
        return vec![share(cpus)];
    }
    if !counted.is_empty() {
        let shares: Vec<Vec<Fraction>> = counted.iter().map(share).collect();
        let mean =
            |place: usize| shares.iter().fold(int(0), |sum, share| sum + share[place]) / int(shares.len() as u64);
        return vec![(0..set.len()).map(mean).collect()];
    }
    if following.is_empty() {
        return vec![vec![int(0); set.len()]];
    }
    let common = |order: Vec<usize>| {
        let mut base = vec![int(0); set.len()];
        let mut rest = int(1);
        for place in order {
            let room = |&r: &usize| int(problem.resources[r].free[set[place]]) / int(problem.resources[r].units);
            base[place] = following.iter().map(room).min().unwrap().min(rest);
            rest -= base[place];
        }
        base
    };
    let mut all = Vec::new();
    for at in 0..set.len() {
        let mut near: Vec<usize> = (0..set.len()).collect();
        near.sort_by_key(|&place| (place != at, distance(problem, set[at], set[place]), set[place]));
        all.push(common(near));
        let mut low: Vec<usize> = (0..set.len()).collect();
        low.sort_by_key(|&place| (place == at, place));
        all.push(common(low));
    }
    all
}

/// The best placement on one set of nodes.
fn on_set(problem: &Problem, set: &[usize], best: &mut Option<(Key, Vec<Vec<Fraction>>)>) {
    let order = order(problem);
    let free = |r: usize| -> Vec<u64> { set.iter().map(|&n| problem.resources[r].free[n]).collect() };
    if order.iter().any(|&r| free(r).iter().sum::<u64>() < problem.resources[r].units) {
        return;
    }
    let equal_in_reach =
        order.iter().all(|&r| free(r).iter().all(|&free| free > 0) && problem.resources[r].units >= set.len() as u64);
    let (amounts, counted): (Vec<usize>, Vec<usize>) = order.iter().partition(|&&r| amount(&problem.resources[r]));
    let alone = |&&r: &&usize| !equal_in_reach && free(r).iter().any(|&free| free >= problem.resources[r].units);
    let (alone, following): (Vec<usize>, Vec<usize>) =
        (amounts.iter().filter(alone).copied().collect(), amounts.iter().filter(|r| !alone(r)).copied().collect());
    let mut choices: Vec<Vec<(usize, Vec<u64>)>> = vec![Vec::new()];
    for &r in &counted {
        let splits = splits(&free(r), problem.resources[r].units);
        choices = choices.iter().flat_map(|c| splits.iter().map(|s| [&c[..], &[(r, s.clone())]].concat())).collect();
    }
    for counted in choices {
        let mut parts: Vec<Vec<(usize, Vec<Fraction>)>> = Vec::new();
        for base in bases(problem, set, &counted, &following) {
            let mut part: Vec<(usize, Vec<Fraction>)> =
                counted.iter().map(|(r, x)| (*r, x.iter().map(|&x| int(x)).collect())).collect();
            part.extend(following.iter().map(|&r| (r, follow(problem, set, &base, r))));
            parts.push(part);
        }
        for &r in &alone {
            let units = problem.resources[r].units;
            let holders: Vec<usize> = (0..set.len()).filter(|&place| free(r)[place] >= units).collect();
            let on = |holder: usize| {
                (r, (0..set.len()).map(|place| int(if place == holder { units } else { 0 })).collect::<Vec<_>>())
            };
            parts = parts.iter().flat_map(|p| holders.iter().map(|&h| [&p[..], &[on(h)]].concat())).collect();
        }
        for part in parts {
            let mut x = vec![vec![int(0); problem.nodes.len()]; problem.resources.len()];
            for (r, row) in part {
                set.iter().zip(row).for_each(|(&n, units)| x[r][n] = units);
            }
            let key = key(problem, &x);
            if best.as_ref().is_none_or(|(other, _)| key < *other) {
                *best = Some((key, x));
            }
        }
    }
}

/// Whole units: largest remainders, ties lowest id; one at least where there is any.
fn round(row: &[Fraction], units: u64) -> Vec<u64> {
    let mut whole: Vec<u64> = row.iter().map(|x| x.floor().to_integer() as u64).collect();
    let some = row.iter().filter(|x| **x > int(0)).count() as u64;
    let mut fixed = vec![false; row.len()];
    if units >= some {
        for n in 0..row.len() {
            if row[n] > int(0) && whole[n] == 0 {
                (whole[n], fixed[n]) = (1, true);
            }
        }
    }
    let remainder = |n: usize| if fixed[n] { int(0) } else { row[n].fract() };
    let mut left: Vec<usize> = (0..row.len()).collect();
    while whole.iter().sum::<u64>() < units {
        let most = left.iter().copied().reduce(|a, b| if remainder(b) > remainder(a) { b } else { a }).unwrap();
        whole[most] += 1;
        left.retain(|&n| n != most);
    }
    let mut back: Vec<usize> = Vec::new();
    while whole.iter().sum::<u64>() > units {
        if back.is_empty() {
            back = (0..row.len()).collect();
            back.sort_by(|&a, &b| remainder(a).cmp(&remainder(b)).then(b.cmp(&a)));
        }
        let n = back.remove(0);
        if whole[n] > 1 {
            whole[n] -= 1;
        }
    }
    whole
}

/// Looks at every placement; none where something is not free.
pub fn best(problem: &Problem) -> Option<Best> {
    let width = width(problem, |resource, n| resource.free[n])?;
    let mut best = None;
    for set in sets(problem.nodes.len(), width) {
        on_set(problem, &set, &mut best);
    }
    let (key, x) = best?;
    let rounded = (0..x.len()).map(|r| round(&x[r], problem.resources[r].units)).collect();
    Some(Best { key, x, rounded })
}
