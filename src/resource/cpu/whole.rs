//! Sums of whole cores, for machines whose cores differ in threads.

/// By number: true when some of the cores have that many threads together.
pub fn sums(sizes: impl IntoIterator<Item = usize>, limit: usize) -> Vec<bool> {
    let mut reached = vec![false; limit + 1];
    reached[0] = true;
    sizes.into_iter().for_each(|size| add(&mut reached, size));
    reached
}

fn add(reached: &mut [bool], size: usize) {
    for sum in (size..reached.len()).rev() {
        reached[sum] |= reached[sum - size];
    }
}

/// The cores to take, by index: they add up to the largest sum that is no more
/// than wanted, and come as early in the list as such cores can.
pub fn choose(sizes: &[usize], wanted: usize) -> Vec<usize> {
    // By index: the sums that the cores from there on can make.
    let mut reached = vec![sums([], wanted); sizes.len() + 1];
    for at in (0..sizes.len()).rev() {
        reached[at] = reached[at + 1].clone();
        add(&mut reached[at], sizes[at]);
    }
    let mut left = reached[0].iter().rposition(|&reached| reached).unwrap_or(0);
    let mut chosen = Vec::new();
    for (at, &size) in sizes.iter().enumerate() {
        if size <= left && reached[at + 1][left - size] {
            chosen.push(at);
            left -= size;
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_cores_that_add_up_are_chosen() {
        assert_eq!(choose(&[1, 1, 2, 2], 3), [0, 2]);
        assert_eq!(choose(&[1, 1, 2, 2], 4), [0, 1, 2]);
        assert_eq!(choose(&[2, 2, 2], 5), [0, 1], "as much as goes without breaking a core");
        assert_eq!(choose(&[4, 2], 3), [1]);
        assert_eq!(choose(&[], 3), [0; 0]);
        assert_eq!(choose(&[1], 0), [0; 0]);
    }

    #[test]
    fn sums_are_those_of_any_selection() {
        assert_eq!(sums([2, 2], 5), [true, false, true, false, true, false]);
    }
}
