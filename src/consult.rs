//! Planning with advice: a plan says what the plugins of device classes are to
//! be asked, they are asked here, and it is planned again with their answers.

use crate::config::Config;
use crate::observe::Observed;
use crate::plan::{self, Plan};
use crate::request::Request;
use crate::resource::prefer::{Question, Verdict};
use crate::{host, report};
use std::collections::BTreeMap;

/// Rounds of questions at most: each answer may lead to another one, and so may
/// what other launches do meanwhile.
const ROUNDS: usize = 64;

/// The plugins' part in one launch.
#[derive(Debug)]
pub struct Consultation {
    left: usize,
    /// Those that have failed, by class. They are not asked again.
    silent: BTreeMap<String, Verdict>,
}

impl Consultation {
    /// Of a launch that asks for this.
    ///
    /// # Errors
    /// Root is to run a plugin that others can change.
    pub fn new(request: &Request, config: &Config) -> Result<Consultation, host::plugin::Distrust> {
        if nix::unistd::geteuid().is_root() {
            let classes = request.devices.iter().filter_map(|device| config.class.get(&device.class));
            classes.filter_map(|class| class.prefer.as_deref()).try_for_each(host::plugin::trusted)?;
        }
        Ok(Consultation { left: ROUNDS, silent: BTreeMap::new() })
    }

    /// True while a plan has questions and is worth another one with the answers.
    pub fn goes_on(&mut self, plan: &mut Plan) -> bool {
        if plan.questions.is_empty() {
            return false;
        }
        if self.left == 0 {
            let enough = format!("plugins were asked {ROUNDS} times: the rest is by the built-in preference");
            plan.remarks.push(enough);
            return false;
        }
        self.left -= 1;
        true
    }

    /// Asks, and remembers the answers among the facts. It may take as long as
    /// the configuration lets each plugin think: nothing is to be locked.
    pub fn ask(&mut self, questions: &[Question], observed: &mut Observed) {
        for question in questions {
            let verdict = self.verdict(question, observed);
            observed.answers.insert(question.clone(), verdict);
        }
    }

    fn verdict(&mut self, question: &Question, observed: &Observed) -> Verdict {
        if let Some(verdict) = self.silent.get(&question.class) {
            return verdict.clone();
        }
        let class = observed.config.class.get(&question.class);
        let Some((class, program)) = class.and_then(|class| Some((class, class.prefer.as_deref()?))) else {
            return Verdict::default();
        };
        let text = report::question::json(question, &observed.machine).to_string();
        match host::plugin::ask(program, text.as_bytes(), class.prefer_within()) {
            Ok(answer) => Verdict::of(question, &answer),
            Err(silence) => {
                let verdict = Verdict::silent(silence.to_string());
                self.silent.insert(question.class.clone(), verdict.clone());
                verdict
            }
        }
    }
}

/// The plan of a request, with all that plugins have to say to it.
///
/// # Errors
/// Root is to run a plugin that others can change.
pub fn plan(request: &Request, observed: &mut Observed) -> anyhow::Result<Plan> {
    let mut consultation = Consultation::new(request, &observed.config)?;
    loop {
        let mut plan = plan::plan(request, &observed.facts());
        if !consultation.goes_on(&mut plan) {
            return Ok(plan);
        }
        consultation.ask(&plan.questions, observed);
    }
}
