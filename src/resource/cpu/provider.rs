//! The provider of CPUs: a request's line and the machine in, hints and CPUs out.

use super::explicit;
use super::first_threads_of_free_cores;
use super::{Ask, CpuError, CpuLayout, CpuOptions, SmtMode, Stock, alloc, capacity, exclusive_free, take};
use crate::hint::Capacity;
use crate::hint::relative::Kind;
use crate::request::{CpuChoice, CpuRequest};
use crate::resource::{
    Allocation, Counts, Granted, HintProvider, Offer, Shortage, Situation, Units, amounts_worth_trying, per_node_text,
};
use crate::topology::{CpuSet, NodeMask};
use std::collections::BTreeMap;

/// CPUs, and how many or which ones are wanted.
#[derive(Debug)]
pub struct CpuProvider {
    wanted: usize,
    options: CpuOptions,
    smt: SmtMode,
    /// All online CPUs of the kind that is asked for: sockets and cores are
    /// whole or not whatever the pool is.
    layout: CpuLayout,
    stock: Stock,
    reserved: CpuSet,
    /// The very CPUs, where they were named.
    exactly: Option<CpuSet>,
    /// Why the request cannot be met at all.
    refused: Option<String>,
    /// How many CPUs are allowed here, and how many are online.
    allowed: (usize, usize),
}

impl CpuProvider {
    /// The CPUs that the request may use.
    pub fn new(request: &CpuRequest, situation: &Situation<'_>) -> CpuProvider {
        let kind = explicit::of_kind(request.kind.as_deref(), situation.machine);
        let usable = kind.as_ref().map_or_else(|_| CpuSet::new(), Clone::clone);
        let layout = CpuLayout::of(situation.machine, &usable);
        let nodes = explicit::nodes(&request.choice, situation.machine);
        let within = nodes.as_ref().map_or_else(
            |_| CpuSet::new(),
            |nodes| nodes.as_ref().map_or_else(|| usable.clone(), |nodes| layout.cpus_on(nodes)),
        );
        let pool = situation.pool.and(&within);
        let stock = stock(&layout, &pool, &situation.holdings.cpus, request);
        let exactly = explicit::exactly(&request.choice, &pool, situation.machine).map(|cpus| match request.smt {
            SmtMode::OnePerCore => first_threads_of_free_cores(&layout, &cpus),
            _ => cpus,
        });
        let held = exactly.as_ref().map(|cpus| explicit::check(cpus, &layout, situation, request.smt));
        let refused = [kind.err(), nodes.err(), held.and_then(Result::err)].into_iter().flatten().next();
        let wanted = match (&request.choice, &exactly) {
            (CpuChoice::Count(count, _), _) => *count as usize,
            (_, Some(cpus)) => cpus.len(),
            (_, None) => 0,
        };
        let refused = refused.or_else(|| request.options.check_layout(&layout).err().map(|error| error.to_string()));
        CpuProvider {
            wanted,
            options: request.options,
            smt: request.smt,
            stock,
            reserved: situation.config.reserved.cpus.clone(),
            exactly,
            refused,
            allowed: (situation.pool.len(), situation.machine.online().len()),
            layout: if request.smt == SmtMode::OnePerCore { layout.first_threads() } else { layout },
        }
    }

    /// The hints. Nodes of which nothing can be handed out are in no mask.
    fn capacity(&self) -> Capacity {
        let stock = match &self.exactly {
            Some(cpus) => Stock { allocatable: cpus.clone(), free: CpuSet::new(), reusable: cpus.clone() },
            None => self.stock.clone(),
        };
        let mut capacity = capacity(&self.layout, &stock, self.wanted, &self.options);
        for amount in &mut capacity.amounts {
            amount.supply.retain(|supply| supply.total > 0);
        }
        let places = capacity.amounts.iter().flat_map(|amount| &amount.supply);
        capacity.domain = places.flat_map(|supply| supply.nodes.iter()).collect();
        capacity
    }

    fn shortage(&self) -> Option<Shortage> {
        let free = self.stock.free.len();
        let short = |message: String| Shortage {
            resource: "cpu".into(),
            wanted: self.wanted as u64,
            free: free as u64,
            message,
        };
        if let Some(refused) = &self.refused {
            return Some(short(refused.clone()));
        }
        if self.exactly.is_some() {
            return None;
        }
        match self.grant(None) {
            Ok(_) => None,
            Err(CpuError::NotEnough { .. }) => Some(short(self.not_enough())),
            Err(error) => Some(short(error.to_string())),
        }
    }

    fn not_enough(&self) -> String {
        let mut places: BTreeMap<Option<u32>, u64> = BTreeMap::new();
        for cpu in self.stock.free.iter() {
            *places.entry(self.layout.place(cpu).and_then(|place| place.node)).or_default() += 1;
        }
        let (what, free) = match self.smt {
            SmtMode::OnePerCore => ("cores", self.stock.free.len()),
            _ if self.options.full_cores => ("cpus on whole cores", self.stock.free.len()),
            _ => ("cpus", self.stock.free.len()),
        };
        let (allowed, online) = self.allowed;
        let allowed =
            if allowed < online { format!("; {allowed} allowed here of {online} online") } else { String::new() };
        format!("not enough {what}: {} wanted, {free} free{}{allowed}", self.wanted, per_node_text(&places))
    }

    /// 2 where cores of two threads are handed out whole, else 1.
    fn cpus_per_unit(&self) -> u64 {
        match self.options.full_cores && self.layout.is_uniform() && self.smt != SmtMode::OnePerCore {
            true => self.layout.threads_per_core() as u64,
            false => 1,
        }
    }

    fn take(&self, free: &CpuSet, wanted: usize) -> Result<CpuSet, Shortage> {
        let short = |error: CpuError| Shortage {
            message: error.to_string(),
            ..Shortage::of("cpu", wanted as u64, free.len() as u64)
        };
        take(&self.layout, free, wanted, &self.options).map_err(short)
    }

    fn granted(&self, cpus: CpuSet) -> Allocation {
        let mut per_node = BTreeMap::new();
        let node = |cpu: u32| self.layout.place(cpu).and_then(|place| place.node);
        cpus.iter().filter_map(node).for_each(|node| *per_node.entry(node).or_default() += 1);
        let unknown = cpus.len() as u64 - per_node.values().sum::<u64>();
        Allocation { resource: "cpu".into(), per_node, unknown, granted: Granted::Cpus(cpus) }
    }

    fn grant(&self, affinity: Option<&NodeMask>) -> Result<CpuSet, CpuError> {
        let ask = Ask {
            wanted: self.wanted,
            mask: affinity.cloned(),
            shared: self.stock.free.or(&self.reserved),
            reserved: self.reserved.clone(),
            reusable: CpuSet::new(),
        };
        alloc(&self.layout, &ask, &self.options).map(|grant| grant.cpus)
    }
}

/// What could be handed out, and what of it nobody holds. What counts whole
/// cores leaves half-used ones out.
fn stock(layout: &CpuLayout, pool: &CpuSet, held: &CpuSet, request: &CpuRequest) -> Stock {
    let counted = |cpus: CpuSet| match request.smt {
        SmtMode::OnePerCore => first_threads_of_free_cores(layout, &cpus),
        _ if request.options.full_cores => layout.whole_cores(&cpus),
        _ => cpus,
    };
    let free = exclusive_free(layout, pool, held, request.smt);
    Stock { allocatable: counted(pool.and(layout.cpus())), free: counted(free), reusable: CpuSet::new() }
}

impl HintProvider for CpuProvider {
    fn name(&self) -> &str {
        "cpu"
    }

    fn wanted(&self) -> u64 {
        self.wanted as u64
    }

    fn offer(&self) -> Result<Offer, Shortage> {
        match self.shortage() {
            Some(shortage) => Err(shortage),
            None => Ok(Offer::Capacity(self.capacity())),
        }
    }

    fn allocate(&self, affinity: Option<&NodeMask>) -> Result<Allocation, Shortage> {
        let cpus = match &self.exactly {
            Some(cpus) => cpus.clone(),
            None => self.grant(affinity).map_err(|error| {
                let short = || Shortage::of("cpu", self.wanted as u64, self.stock.free.len() as u64);
                self.shortage().unwrap_or_else(|| Shortage { message: error.to_string(), ..short() })
            })?,
        };
        Ok(self.granted(cpus))
    }

    fn counts(&self) -> Counts {
        let scale = self.cpus_per_unit();
        let amount = self.capacity().amounts.swap_remove(0);
        let mut counts = Counts::of(Kind::Cpus, &amount);
        for units in [&mut counts.units, &mut counts.unknown]
            .into_iter()
            .chain(counts.free.values_mut())
            .chain(counts.total.values_mut())
        {
            *units /= scale;
        }
        counts
    }

    fn allocate_on(&self, units: &Units) -> Result<Allocation, Shortage> {
        let units = units.get("cpu").cloned().unwrap_or_default();
        if self.exactly.is_some() || self.options.spread_nodes {
            return self.allocate(Some(&units.keys().copied().collect()));
        }
        let mut cpus = CpuSet::new();
        for (&node, &count) in &units {
            let free = self.stock.free.and(&self.layout.cpus_on(&NodeMask::one(node)));
            cpus = cpus.or(&self.take(&free, (count * self.cpus_per_unit()) as usize)?);
        }
        let nodeless = self.layout.cpus().minus(&self.layout.cpus_on(&self.layout.nodes()));
        let rest = self.take(&self.stock.free.and(&nodeless), self.wanted.saturating_sub(cpus.len()))?;
        Ok(self.granted(cpus.or(&rest)))
    }

    fn smaller(&self) -> Vec<u64> {
        if self.exactly.is_some() || self.refused.is_some() {
            return Vec::new();
        }
        let amounts = self.capacity().amounts;
        let free = amounts.iter().flat_map(|amount| &amount.supply).map(|supply| supply.free);
        amounts_worth_trying(free, self.wanted as u64)
    }

    fn option(&self, units: u64) -> String {
        format!("--cpus {units}")
    }
}

/// CPUs of the shared pool: those that nobody has for himself, this launch
/// included; reserved ones too, unless `strict-reservation`.
pub fn shared(strict: bool, smt: SmtMode, situation: &Situation<'_>, granted: &CpuSet) -> Result<CpuSet, Shortage> {
    let layout = CpuLayout::of(situation.machine, &situation.machine.online());
    let taken = situation.holdings.cpus.or(granted);
    let pool = match strict {
        true => situation.shared.minus(&situation.config.reserved.cpus),
        false => situation.shared.clone(),
    };
    let shared = exclusive_free(&layout, &pool, &taken, smt);
    match shared.is_empty() {
        false => Ok(shared),
        true => Err(Shortage {
            message: "no CPU is left for the shared pool (--shared-cpus): every one is held, or idle beside a held one"
                .into(),
            ..Shortage::of("cpu", 1, 0)
        }),
    }
}
