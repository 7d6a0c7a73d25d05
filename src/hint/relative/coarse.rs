//! Shares and distances in 64 bits whatever the request, for bounds: the
//! numbers themselves where they fit, else rounded, with what that can amount to.

use super::scaled::{Number, Scaled};

/// How numbers become coarse.
pub(super) struct Coarse<N> {
    /// The share that is all of a resource, and in exact numbers.
    pub whole: i64,
    exactly: N,
    /// The distance between resources may be so much off.
    pub slack: i64,
}

impl<N: Number> Coarse<N> {
    pub fn new(scaled: &Scaled<N>) -> Self {
        let far = scaled.distance.iter().flatten().filter_map(N::to_i64).max().unwrap_or(0).max(1);
        let (ranks, nodes) = (scaled.ranked.len() as i64 + 1, scaled.problem.nodes.len() as i64);
        let terms = 4 * ranks * ranks;
        // Squares of shares times all distances fit, and half the range is left for the slack.
        let most = (i64::MAX / 4 / terms / far).isqrt();
        let exactly = scaled.whole.clone();
        match exactly.to_i64().filter(|whole| *whole <= most) {
            Some(whole) => Coarse { whole, exactly, slack: 0 },
            None => {
                let whole = most.max(1);
                // Each share is less than one too small, and so is what is left of a whole for each node.
                let slack = (terms * nodes * far).saturating_mul(whole).min(i64::MAX / 4);
                Coarse { whole, exactly, slack }
            }
        }
    }

    pub fn is_exact(&self) -> bool {
        self.slack == 0
    }

    /// A share, or a share times a distance.
    pub fn share(&self, share: &N) -> i64 {
        match self.is_exact() {
            true => share.to_i64().unwrap_or(i64::MAX),
            false => self.share_of(share, self.whole),
        }
    }

    /// A share where such a number is all of a resource, rounded down.
    pub fn share_of(&self, share: &N, whole: i64) -> i64 {
        (share.clone() * &N::fit(whole.unsigned_abs()) / &self.exactly).to_i64().unwrap_or(i64::MAX)
    }

    /// A product of two shares and a distance.
    pub fn apart(&self, apart: &N) -> i64 {
        match self.is_exact() {
            true => apart.to_i64().unwrap_or(i64::MAX),
            false => self.share(&(apart.clone() / &self.exactly)).saturating_mul(self.whole),
        }
    }
}
