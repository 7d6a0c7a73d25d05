//! How long a search may go on. Steps are counted, not time, so that the same
//! question has the same answer everywhere.

/// Steps that are left; one is some nanoseconds of work.
pub(super) struct Budget {
    left: u64,
}

impl Budget {
    pub(super) fn new(steps: u64) -> Budget {
        Budget { left: steps }
    }

    /// Takes these steps; false when there are not so many left.
    pub(super) fn spend(&mut self, steps: usize) -> bool {
        let rest = self.left.checked_sub(steps as u64);
        self.left = rest.unwrap_or(0);
        rest.is_some()
    }

    /// Lets a search have one part in so many of what is left, and takes back what it did not use.
    pub(super) fn lend<T>(&mut self, parts: u64, search: impl FnOnce(&mut Budget) -> T) -> T {
        let mut lent = Budget { left: self.left / parts };
        self.left -= lent.left;
        let found = search(&mut lent);
        self.left += lent.left;
        found
    }
}
