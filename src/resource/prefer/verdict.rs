//! What the answer of a plugin is worth: advice, checked, and never more.

use super::question::{Place, Question};
use crate::topology::Bdf;
use serde::Deserialize;
use serde_json::Value;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Costs above are no costs: whole numbers up to it are exact.
const LARGEST_COST: f64 = (1u64 << 53) as f64;
/// Letters of a plugin's own words that are repeated.
const REPEATED: usize = 60;

/// All answers that were had, by what was asked.
pub type Answers = BTreeMap<Question, Verdict>;

/// The use of one answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    best: Option<Preferred>,
    wrong: Option<String>,
}

/// A set of devices that a plugin prefers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preferred {
    /// The devices, those that it had to include too.
    pub devices: Vec<Bdf>,
    /// The plugin's name for what they have in common, such as an NVLink island.
    pub resource_domain: Option<String>,
    /// Less is better.
    pub cost: Cost,
}

/// A cost: zero or more, with an end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost(f64);

impl Eq for Cost {}

impl Ord for Cost {
    fn cmp(&self, other: &Cost) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Cost {
    fn partial_cmp(&self, other: &Cost) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl Cost {
    /// The number.
    pub fn number(self) -> f64 {
        self.0
    }

    fn of(number: f64) -> Option<Cost> {
        // Zero has one sign only, or two equal costs would be told apart.
        (0.0..=LARGEST_COST).contains(&number).then(|| Cost(number.abs()))
    }
}

/// An answer as it is written. What else it says is left alone.
#[derive(Deserialize)]
struct Written {
    preferred: Vec<Value>,
}

#[derive(Deserialize)]
struct WrittenSet {
    devices: Vec<String>,
    #[serde(default)]
    resource_domain: Option<String>,
    #[serde(default)]
    cost: f64,
}

impl Verdict {
    /// No answer was had.
    pub fn silent(reason: impl Into<String>) -> Verdict {
        Verdict { best: None, wrong: Some(reason.into()) }
    }

    /// Reads an answer: of the sets that are as asked, the one of the lowest
    /// cost, the first of those.
    pub fn of(question: &Question, answer: &[u8]) -> Verdict {
        let written = match serde_json::from_slice::<Written>(answer) {
            Ok(written) => written,
            Err(error) => return Verdict::silent(format!("its answer cannot be read: {}", shown(&error.to_string()))),
        };
        let asked = Asked::new(question);
        let mut verdict = Verdict::default();
        let mut elsewhere = None;
        for (at, set) in written.preferred.into_iter().enumerate() {
            match asked.read(set) {
                Ok(set) => match question.places.iter().find_map(|place| miscounted(place, &set)) {
                    None if verdict.best.as_ref().is_none_or(|best| set.cost < best.cost) => verdict.best = Some(set),
                    None => {}
                    Some(count) => elsewhere = elsewhere.or(Some((at, count))),
                },
                Err(reason) => verdict.wrong = verdict.wrong.or(Some(numbered(at, &reason))),
            }
        }
        // A plugin need not know of nodes: what fits them not is wrong only where nothing else fits.
        if verdict.best.is_none() {
            verdict.wrong = verdict.wrong.or(elsewhere.map(|(at, reason)| numbered(at, &reason)));
        }
        verdict
    }

    /// The set to take.
    pub fn best(&self) -> Option<&Preferred> {
        self.best.as_ref()
    }

    /// What is wrong with the answer, in words.
    pub fn wrong(&self) -> Option<&str> {
        self.wrong.as_deref()
    }
}

fn numbered(at: usize, reason: &str) -> String {
    format!("set {} of its answer is not used: {reason}", at + 1)
}

/// How a set parts from the count of a place.
fn miscounted(place: &Place, set: &Preferred) -> Option<String> {
    let count = place.from.iter().filter(|device| set.devices.contains(&device.bdf)).count();
    let nodes: Vec<String> = place.nodes().iter().map(u32::to_string).collect();
    let of = if nodes.is_empty() { "unknown nodes".to_owned() } else { format!("node {}", nodes.join(",")) };
    (count != place.count).then(|| format!("it takes {count} from {of}, not {}", place.count))
}

/// A question, ready to be compared with.
struct Asked {
    size: usize,
    available: BTreeSet<Bdf>,
    must_include: Vec<Bdf>,
}

impl Asked {
    fn new(question: &Question) -> Asked {
        let available = question.available().into_iter().collect();
        Asked { size: question.size(), available, must_include: question.must_include() }
    }

    fn read(&self, set: Value) -> Result<Preferred, String> {
        let written = WrittenSet::deserialize(set).map_err(|error| shown(&error.to_string()))?;
        let cost = Cost::of(written.cost).ok_or_else(|| format!("{} is no cost: write 0 to 2^53", written.cost))?;
        let count = written.devices.len();
        if count != self.size {
            return Err(format!("its size is {count}, not {}", self.size));
        }
        let mut devices = BTreeSet::new();
        for word in &written.devices {
            let bdf: Bdf = word.parse().map_err(|_| format!("`{}` is no PCI address", shown(word)))?;
            if !self.available.contains(&bdf) {
                return Err(format!("{bdf} was not offered"));
            }
            if !devices.insert(bdf) {
                return Err(format!("it names {bdf} twice"));
            }
        }
        if let Some(missing) = self.must_include.iter().find(|bdf| !devices.contains(bdf)) {
            return Err(format!("it lacks {missing}, which it must include"));
        }
        let resource_domain = written.resource_domain.map(|domain| shown(&domain));
        Ok(Preferred { devices: devices.into_iter().collect(), resource_domain, cost })
    }
}

/// A plugin's words, such that they do a terminal no harm.
fn shown(words: &str) -> String {
    let more = if words.chars().nth(REPEATED).is_some() { "…" } else { "" };
    words.chars().take(REPEATED).flat_map(char::escape_debug).collect::<String>() + more
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Device;

    fn device(node: u32, bus: u8) -> Device {
        Device { node: Some(node), bdf: Bdf { bus, ..Bdf::default() }, vendor: 0, made_by: None }
    }

    /// Two of four on node 0 and one of two on node 1, beside one that was typed.
    fn question() -> Question {
        Question {
            beside: vec![device(0, 9)],
            places: vec![
                Place { count: 2, from: (0..4).map(|bus| device(0, bus)).collect() },
                Place { count: 1, from: (4..6).map(|bus| device(1, bus)).collect() },
            ],
            ..Question::default()
        }
    }

    fn set(buses: &[u8], rest: &str) -> String {
        let words: Vec<String> = buses.iter().map(|bus| format!("\"0000:{bus:02x}:00.0\"")).collect();
        format!("{{\"devices\": [{}]{rest}}}", words.join(", "))
    }

    fn answer(sets: &[String]) -> Verdict {
        Verdict::of(&question(), format!("{{\"preferred\": [{}]}}", sets.join(", ")).as_bytes())
    }

    fn buses(verdict: &Verdict) -> Vec<u8> {
        verdict.best().map(|best| best.devices.iter().map(|bdf| bdf.bus).collect()).unwrap_or_default()
    }

    #[test]
    fn the_lowest_cost_wins_and_of_equal_ones_the_first() {
        let sets = [
            set(&[0, 1, 4, 9], ", \"cost\": 2"),
            set(&[2, 3, 5, 9], ", \"cost\": 1, \"resource_domain\": \"island\""),
            set(&[0, 3, 5, 9], ", \"cost\": 1.0, \"more\": []"),
        ];
        let verdict = answer(&sets);
        assert_eq!((buses(&verdict), verdict.wrong()), (vec![2, 3, 5, 9], None));
        assert_eq!(verdict.best().unwrap().resource_domain.as_deref(), Some("island"));
        assert_eq!(question().own(&verdict.best().unwrap().devices), [device(0, 2), device(0, 3), device(1, 5)]);
        let zeros = [set(&[0, 1, 4, 9], ", \"cost\": 0"), set(&[2, 3, 5, 9], ", \"cost\": -0.0")];
        assert_eq!(buses(&answer(&zeros)), [0, 1, 4, 9]);
    }

    #[test]
    fn no_preference_is_no_mistake() {
        assert_eq!(answer(&[]), Verdict::default());
    }

    #[test]
    fn a_set_that_is_not_as_asked_is_named_and_a_good_one_beside_it_is_taken() {
        let wrong = [
            (set(&[0, 1, 4], ""), "its size is 3, not 4"),
            (set(&[0, 1, 2, 4, 9], ""), "its size is 5, not 4"),
            (set(&[], ""), "its size is 0, not 4"),
            (set(&[0, 0, 4, 9], ""), "it names 0000:00:00.0 twice"),
            (set(&[0, 1, 7, 9], ""), "0000:07:00.0 was not offered"),
            (set(&[0, 1, 4, 5], ""), "it lacks 0000:09:00.0, which it must include"),
            (set(&[0, 1, 4, 9], ", \"cost\": -1"), "-1 is no cost"),
            (set(&[0, 1, 4, 9], ", \"cost\": 1e300"), "is no cost"),
            (set(&[0, 1, 4, 9], ", \"cost\": null"), "invalid type: null"),
            (set(&[0, 1, 4, 9], ", \"cost\": \"3\""), "invalid type: string"),
            (set(&[0, 1, 4, 9], ", \"resource_domain\": 3"), "invalid type: integer"),
            ("{\"devices\": [\"a\", \"b\", \"c\", \"d\"]}".into(), "`a` is no PCI address"),
            ("{\"devices\": [1, 2, 3, 4]}".into(), "invalid type: integer"),
            ("{\"devices\": \"0000:00:00.0\"}".into(), "invalid type: string"),
            ("{\"cost\": 0}".into(), "missing field `devices`"),
            ("null".into(), "invalid type: null"),
            ("[]".into(), ""),
        ];
        for (set_of_it, part) in wrong {
            let alone = answer(std::slice::from_ref(&set_of_it));
            assert_eq!(alone.best(), None, "{set_of_it}");
            let said = alone.wrong().unwrap();
            assert!(said.starts_with("set 1 of its answer is not used: ") && said.contains(part), "{said}");
            let beside = answer(&[set(&[2, 3, 4, 9], ", \"cost\": 5"), set_of_it]);
            assert_eq!(buses(&beside), [2, 3, 4, 9]);
            assert!(beside.wrong().unwrap().starts_with("set 2"), "{beside:?}");
        }
    }

    #[test]
    fn what_is_no_answer_at_all_is_said() {
        let deep = "[".repeat(100_000);
        for text in ["", "{", "[]", "{}", "null", "{\"preferred\": {}}", "{\"preferred\": [NaN]}", "\u{1b}[2J", &deep] {
            let verdict = Verdict::of(&question(), text.as_bytes());
            assert!(verdict.best().is_none() && verdict.wrong().unwrap().starts_with("its answer cannot be read"));
        }
        for bytes in [&b"\xff\xfe{\"preferred\": []}"[..], b"{\"preferred\": []} and more", b"{\"preferred\": [1e999]}"]
        {
            assert!(Verdict::of(&question(), bytes).wrong().is_some());
        }
    }

    #[test]
    fn the_counts_of_the_nodes_stand_whatever_is_preferred() {
        let verdict = answer(&[set(&[0, 1, 2, 9], "")]);
        let said = "set 1 of its answer is not used: it takes 3 from node 0, not 2";
        assert_eq!((verdict.best(), verdict.wrong()), (None, Some(said)));
        let verdict = answer(&[set(&[0, 1, 2, 9], ""), set(&[0, 1, 5, 9], ", \"cost\": 3")]);
        assert_eq!((buses(&verdict), verdict.wrong()), (vec![0, 1, 5, 9], None), "another set does fit");
    }

    #[test]
    fn the_words_of_a_plugin_are_cut_short_and_harmless() {
        let domain = format!(", \"resource_domain\": \"\\u001b[2J{}\"", "x".repeat(1000));
        let verdict = answer(&[set(&[0, 1, 4, 9], &domain)]);
        let domain = verdict.best().unwrap().resource_domain.clone().unwrap();
        assert!(domain.starts_with("\\u{1b}[2Jx") && domain.chars().count() < 80, "{domain}");
        let verdict = answer(&["{\"devices\": [\"\\u001b[2J\", \"\", \"\", \"\"]}".to_owned()]);
        assert!(verdict.wrong().unwrap().ends_with("`\\u{1b}[2J` is no PCI address"), "{verdict:?}");
    }
}
