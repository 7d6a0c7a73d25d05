//! Shares that are certain while a row is being placed, and what they cost.

/// Shares of the parts that change while a row is being placed. One vector
/// holds all numbers: it is copied at each step.
#[derive(Clone, Default)]
pub(super) struct Certain {
    nodes: usize,
    parts: usize,
    numbers: Vec<i64>,
    /// What is certain is so far apart.
    pub cost: i64,
    /// What is followed and not certain to be anywhere.
    pub unfollowed: i64,
}

impl Certain {
    pub fn nothing(nodes: usize, parts: usize, whole: i64) -> Certain {
        let mut numbers = vec![0; 2 * (parts + 1) * nodes + 2 * parts];
        numbers[2 * (parts + 1) * nodes..][..parts].fill(whole);
        Certain { nodes, parts, numbers, cost: 0, unfollowed: 0 }
    }

    pub fn copy(&mut self, other: &Certain) {
        (self.nodes, self.parts, self.cost) = (other.nodes, other.parts, other.cost);
        self.unfollowed = other.unfollowed;
        self.numbers.clone_from(&other.numbers);
    }

    /// The share of a part on each node.
    pub fn share(&self, part: usize) -> &[i64] {
        &self.numbers[part * self.nodes..][..self.nodes]
    }

    /// The mean distance of each node from a part.
    pub fn seen(&self, part: usize) -> &[i64] {
        &self.numbers[(self.parts + part) * self.nodes..][..self.nodes]
    }

    /// The mean distance of each node from everything.
    pub fn seen_of_all(&mut self) -> &mut [i64] {
        &mut self.numbers[2 * self.parts * self.nodes..][..self.nodes]
    }

    /// The same, and from a part.
    pub fn seen_of_all_and(&self, part: usize) -> (&[i64], &[i64]) {
        (&self.numbers[2 * self.parts * self.nodes..][..self.nodes], self.seen(part))
    }

    /// The mean distance of each node from what is followed.
    pub fn seen_of_base(&self) -> &[i64] {
        &self.numbers[(2 * self.parts + 1) * self.nodes..][..self.nodes]
    }

    /// More of what is followed is on a node with these distances.
    pub fn follow(&mut self, more: i64, distances: &[i64]) {
        self.unfollowed -= more;
        let seen = &mut self.numbers[(2 * self.parts + 1) * self.nodes..][..self.nodes];
        seen.iter_mut().zip(distances).for_each(|(seen, distance)| *seen += more * distance);
    }

    /// What is not certain to be anywhere of a part.
    pub fn rest(&self, part: usize) -> i64 {
        self.numbers[2 * (self.parts + 1) * self.nodes + part]
    }

    /// What is certain to have no room where what a part follows is.
    pub fn over(&self, part: usize) -> i64 {
        self.numbers[2 * (self.parts + 1) * self.nodes + self.parts + part]
    }

    pub fn overflow(&mut self, part: usize, more: i64) {
        self.numbers[2 * (self.parts + 1) * self.nodes + self.parts + part] += more;
    }

    /// No less of a part than that is on a node with these distances.
    pub fn add(&mut self, part: usize, node: usize, share: i64, distances: &[i64]) {
        let more = share - self.numbers[part * self.nodes + node];
        if more <= 0 {
            return;
        }
        let (all, own) = (2 * self.parts * self.nodes, (self.parts + part) * self.nodes);
        self.cost += more * (self.numbers[all + node] - self.numbers[own + node]);
        self.numbers[part * self.nodes + node] = share;
        self.numbers[2 * (self.parts + 1) * self.nodes + part] -= more;
        for at in [all, own] {
            let seen = &mut self.numbers[at..][..distances.len()];
            seen.iter_mut().zip(distances).for_each(|(seen, distance)| *seen += more * distance);
        }
    }
}
