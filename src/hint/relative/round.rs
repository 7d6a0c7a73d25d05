//! Whole units of shares, at the very end.

use super::scaled::Number;
use num_bigint::BigInt;
use num_integer::Integer;
use num_traits::ToPrimitive;

/// Units that come nearest to the shares of `all`: largest remainders first,
/// ties lowest id. Where there are enough units, every node with a share keeps one.
pub(super) fn round<N: Number>(shares: &[N], all: &N, units: u64) -> Vec<u64> {
    let big = |number: &N| number.to_bigint().unwrap_or_default();
    let parts: Vec<(BigInt, BigInt)> = shares.iter().map(|share| (big(share) * units).div_rem(&big(all))).collect();
    let mut whole: Vec<u64> = parts.iter().map(|part| part.0.to_u64().unwrap_or(u64::MAX)).collect();
    let mut remainders: Vec<(BigInt, usize)> = parts.into_iter().map(|part| part.1).zip(0..).collect();
    let some: Vec<usize> = (0..shares.len()).filter(|&node| !shares[node].is_zero()).collect();
    if units >= some.len() as u64 {
        for node in some.into_iter().filter(|&node| whole[node] == 0).collect::<Vec<_>>() {
            whole[node] = 1;
            remainders[node].0 = BigInt::ZERO;
        }
    }
    let given: u64 = whole.iter().sum();
    remainders.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    for &(_, node) in remainders.iter().take(units.saturating_sub(given) as usize) {
        whole[node] += 1;
    }
    take_back(&mut whole, &remainders, given.saturating_sub(units));
    whole
}

/// Takes units from nodes with several, the smallest remainders first.
fn take_back<N>(whole: &mut [u64], remainders: &[(N, usize)], mut count: u64) {
    while count > 0 {
        let before = count;
        for &(_, node) in remainders.iter().rev() {
            if count > 0 && whole[node] > 1 {
                whole[node] -= 1;
                count -= 1;
            }
        }
        if count == before {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::round;

    #[test]
    fn the_largest_remainders_are_rounded_up() {
        assert_eq!(round(&[20_i64, 13, 3], &36, 9), [5, 3, 1]);
        assert_eq!(round(&[6_i64, 6], &12, 3), [2, 1], "a tie goes to the lowest");
    }

    #[test]
    fn a_small_share_is_one_unit_where_there_are_enough() {
        assert_eq!(round(&[15_i64, 1], &16, 4), [3, 1]);
        assert_eq!(round(&[2_i64, 1, 1], &4, 1), [1, 0, 0], "one unit is one unit");
        assert_eq!(round(&[13_i64, 13, 1, 1], &28, 7), [3, 2, 1, 1]);
    }

    #[test]
    fn whole_shares_are_left_alone() {
        assert_eq!(round(&[0_i64, 8, 4], &12, 3), [0, 2, 1]);
    }
}
