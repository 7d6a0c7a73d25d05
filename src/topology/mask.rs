//! Sets of CPU and node ids, in the kernel's list format and of any length.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::str::FromStr;

/// CPUs by the kernel's ids.
pub type CpuSet = IdSet<Cpus>;
/// Nodes by the kernel's ids. Masks compare like the numbers that they are.
pub type NodeMask = IdSet<Nodes>;

/// Marks a set of CPUs.
#[derive(Debug)]
pub enum Cpus {}
/// Marks a set of nodes.
#[derive(Debug)]
pub enum Nodes {}

/// The largest id that a text may name. Linux stops at 8,192 CPUs and 1,024 nodes.
pub const MAX_ID: u32 = 0xf_ffff;

/// A set of ids. It has no fixed size.
pub struct IdSet<K> {
    /// Little-endian words without zero words at the end.
    words: Vec<u64>,
    kind: PhantomData<fn() -> K>,
}

/// Why a text is no list of ids.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// A part that is neither an id nor a range.
    #[error("`{0}` is no id or range: write lists as 0-3,8 or 0-30:2")]
    Part(String),
    /// A range whose end comes before its start.
    #[error("`{0}` runs backwards")]
    Backwards(String),
    /// A stride of zero.
    #[error("`{0}` has a stride of zero")]
    Stride(String),
    /// An id that no kernel has.
    #[error("`{0}` names an id above {MAX_ID}")]
    TooLarge(String),
    /// More ids than there can be, many of them named again and again.
    #[error("the list names more than {} ids", MAX_ID + 1)]
    TooMany,
}

impl<K> IdSet<K> {
    /// The empty set.
    pub const fn new() -> Self {
        IdSet { words: Vec::new(), kind: PhantomData }
    }

    /// The set of one id.
    pub fn one(id: u32) -> Self {
        [id].into_iter().collect()
    }

    /// The set whose ids are the bits of a number.
    pub fn from_bits(bits: u64) -> Self {
        let mut set = IdSet { words: vec![bits], kind: PhantomData };
        set.trim();
        set
    }

    /// The set as little-endian 64-bit words, without zero words at the end.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// The set of such words.
    pub fn from_words(words: Vec<u64>) -> Self {
        let mut set = IdSet { words, kind: PhantomData };
        set.trim();
        set
    }

    /// How many ids it holds.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// True when it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// True when it holds this id.
    pub fn contains(&self, id: u32) -> bool {
        self.words.get(id as usize / 64).is_some_and(|word| word >> (id % 64) & 1 == 1)
    }

    /// Adds an id.
    pub fn insert(&mut self, id: u32) {
        let index = id as usize / 64;
        if self.words.len() <= index {
            self.words.resize(index + 1, 0);
        }
        self.words[index] |= 1 << (id % 64);
    }

    /// Takes an id out.
    pub fn remove(&mut self, id: u32) {
        if let Some(word) = self.words.get_mut(id as usize / 64) {
            *word &= !(1 << (id % 64));
            self.trim();
        }
    }

    /// Lowest id.
    pub fn first(&self) -> Option<u32> {
        self.iter().next()
    }

    /// Highest id.
    pub fn last(&self) -> Option<u32> {
        let word = self.words.last()?;
        Some((self.words.len() as u32) * 64 - 1 - word.leading_zeros())
    }

    /// The ids in ascending order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u32> + Clone + '_ {
        self.words.iter().enumerate().flat_map(|(index, &word)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| index as u32 * 64 + bit)
        })
    }

    /// Ids in both sets.
    pub fn and(&self, other: &Self) -> Self {
        Self::from_words(self.words.iter().zip(&other.words).map(|(a, b)| a & b).collect())
    }

    /// Ids in either set.
    pub fn or(&self, other: &Self) -> Self {
        let (long, short) = if self.words.len() < other.words.len() { (other, self) } else { (self, other) };
        let mut words = long.words.clone();
        words.iter_mut().zip(&short.words).for_each(|(a, b)| *a |= b);
        Self::from_words(words)
    }

    /// Ids of this set that the other does not hold.
    pub fn minus(&self, other: &Self) -> Self {
        let other = other.words.iter().chain(std::iter::repeat(&0));
        Self::from_words(self.words.iter().zip(other).map(|(a, b)| a & !b).collect())
    }

    /// True when no id is in both.
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).all(|(a, b)| a & b == 0)
    }

    /// True when every id of this set is in the other.
    pub fn is_subset(&self, other: &Self) -> bool {
        let theirs = other.words.iter().chain(std::iter::repeat(&0));
        self.words.iter().zip(theirs).all(|(a, b)| a & !b == 0)
    }

    fn trim(&mut self) {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }
}

impl<K> FromStr for IdSet<K> {
    type Err = ListError;

    /// Reads the kernel's list format: `0-3,8`; a range may have a stride,
    /// `0-30:2`. An empty text is the empty set.
    fn from_str(text: &str) -> Result<Self, ListError> {
        let mut set = IdSet::new();
        if text.trim().is_empty() {
            return Ok(set);
        }
        let mut named = 0;
        for part in text.trim().split(',') {
            let (start, end, stride) = range(part.trim())?;
            // Ids named twice are fine; a short text that names billions would take minutes.
            named += (end - start) / stride + 1;
            if named > MAX_ID + 1 {
                return Err(ListError::TooMany);
            }
            (start..=end).step_by(stride as usize).for_each(|id| set.insert(id));
        }
        Ok(set)
    }
}

fn range(part: &str) -> Result<(u32, u32, u32), ListError> {
    let (span, stride) = match part.split_once(':') {
        Some((span, stride)) if span.contains('-') => (span, number(stride, part)?),
        Some(_) => return Err(ListError::Part(part.to_owned())),
        None => (part, 1),
    };
    let (start, end) = span.split_once('-').unwrap_or((span, span));
    let (start, end) = (number(start, part)?, number(end, part)?);
    if start > end {
        return Err(ListError::Backwards(part.to_owned()));
    }
    if stride == 0 {
        return Err(ListError::Stride(part.to_owned()));
    }
    Ok((start, end, stride))
}

fn number(text: &str, part: &str) -> Result<u32, ListError> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ListError::Part(part.to_owned()));
    }
    let value = text.parse::<u32>().ok().filter(|&value| value <= MAX_ID);
    value.ok_or_else(|| ListError::TooLarge(part.to_owned()))
}

impl<K> fmt::Display for IdSet<K> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ids = self.iter().peekable();
        let mut comma = "";
        while let Some(start) = ids.next() {
            let mut end = start;
            while ids.next_if_eq(&(end + 1)).is_some() {
                end += 1;
            }
            match end - start {
                0 => write!(out, "{comma}{start}")?,
                _ => write!(out, "{comma}{start}-{end}")?,
            }
            comma = ",";
        }
        Ok(())
    }
}

impl<K> fmt::Debug for IdSet<K> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{{{self}}}")
    }
}

impl<K> FromIterator<u32> for IdSet<K> {
    fn from_iter<I: IntoIterator<Item = u32>>(ids: I) -> Self {
        let mut set = IdSet::new();
        ids.into_iter().for_each(|id| set.insert(id));
        set
    }
}

impl<K> Extend<u32> for IdSet<K> {
    fn extend<I: IntoIterator<Item = u32>>(&mut self, ids: I) {
        ids.into_iter().for_each(|id| self.insert(id));
    }
}

impl<K> Clone for IdSet<K> {
    fn clone(&self) -> Self {
        IdSet { words: self.words.clone(), kind: PhantomData }
    }
}

impl<K> Default for IdSet<K> {
    fn default() -> Self {
        IdSet::new()
    }
}

impl<K> PartialEq for IdSet<K> {
    fn eq(&self, other: &Self) -> bool {
        self.words == other.words
    }
}

impl<K> Eq for IdSet<K> {}

impl<K> Hash for IdSet<K> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.words.hash(state);
    }
}

impl<K> PartialOrd for IdSet<K> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<K> Ord for IdSet<K> {
    /// Compares as the numbers that the bits make: {1,2} = 6 comes before {0,3} = 9.
    fn cmp(&self, other: &Self) -> Ordering {
        let by_length = self.words.len().cmp(&other.words.len());
        by_length.then_with(|| self.words.iter().rev().cmp(other.words.iter().rev()))
    }
}

impl<K> Serialize for IdSet<K> {
    /// A list for people (JSON, TOML), words for a snapshot.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match serializer.is_human_readable() {
            true => serializer.collect_str(self),
            false => self.words.serialize(serializer),
        }
    }
}

impl<'de, K> Deserialize<'de> for IdSet<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            let text = String::deserialize(deserializer)?;
            return text.parse().map_err(serde::de::Error::custom);
        }
        Vec::deserialize(deserializer).map(IdSet::from_words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cpus(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    #[test]
    fn lists_are_read_and_printed_as_the_kernel_writes_them() {
        assert_eq!(cpus("0-3,8").to_string(), "0-3,8");
        assert_eq!(cpus("8,0,1\n").to_string(), "0-1,8");
        assert_eq!(cpus("0-6:2").to_string(), "0,2,4,6");
        assert_eq!(cpus("").to_string(), "");
        assert_eq!(cpus("1800-1919").len(), 120);
    }

    #[test]
    fn a_bad_list_says_what_is_wrong() {
        let error = |text: &str| text.parse::<CpuSet>().unwrap_err();
        assert_eq!(error("3-1"), ListError::Backwards("3-1".into()));
        assert_eq!(error("0-3:0"), ListError::Stride("0-3:0".into()));
        assert_eq!(error("0-4294967295"), ListError::TooLarge("0-4294967295".into()));
        for text in ["a", "1,,2", "1-", "-1", "1-2-3", "1:2", "+1", "1 2"] {
            assert_eq!(
                error(text),
                ListError::Part(
                    text.split(',').find(|p| p.parse::<u32>().is_err() || p.starts_with('+')).unwrap().into()
                ),
                "{text}"
            );
        }
    }

    #[test]
    fn masks_compare_as_numbers() {
        let mask = |text: &str| text.parse::<NodeMask>().unwrap();
        assert!(mask("1-2") < mask("0,3"));
        assert!(mask("63") < mask("64"));
    }

    proptest! {
        #[test]
        fn set_operations_agree_with_a_tree_of_ids(a: std::collections::BTreeSet<u8>, b: std::collections::BTreeSet<u8>) {
            let set = |ids: &std::collections::BTreeSet<u8>| ids.iter().map(|&id| u32::from(id)).collect::<CpuSet>();
            let (x, y) = (set(&a), set(&b));
            prop_assert_eq!(x.and(&y), set(&(&a & &b)));
            prop_assert_eq!(x.or(&y), set(&(&a | &b)));
            prop_assert_eq!(x.minus(&y), set(&(&a - &b)));
            prop_assert_eq!(x.is_subset(&y), a.is_subset(&b));
            prop_assert_eq!(x.is_disjoint(&y), a.is_disjoint(&b));
            prop_assert_eq!(x.len(), a.len());
            prop_assert_eq!(x.last(), a.last().map(|&id| u32::from(id)));
            prop_assert_eq!(x.to_string().parse::<CpuSet>().unwrap(), x);
        }
    }
}
