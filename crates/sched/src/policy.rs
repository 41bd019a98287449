//! The policy that the control thread runs: from the sizes of an epoch to the plan for the next one.

use minos_base::SizeClass;

use crate::{
    Assignment, ConfigError, ControlConfig, Decision, Design, HANDOFF_WORKERS_MAX, Options, Plan, Role,
    SizeHistogram, Standby, Threshold,
    control::{self, Costs, Split},
    smoothed::Smoothed,
};

/// The automatic threshold before the first requests, in bytes: until sizes are known, a request
/// served in about one slice is small.
const THRESHOLD_BEFORE_FIRST_EPOCH_BYTES: u64 = 64 << 10;

/// A running design: its plan in force, and the state that the next plan depends on.
#[derive(Debug)]
pub struct Policy {
    design: Design,
    options: Options,
    config: ControlConfig,
    smoothed: Smoothed,
    /// Items fetched from flash.
    fetched: Smoothed,
    plan: Plan,
    decision: Decision,
}

impl Policy {
    /// A policy that has seen no request yet. A design that goes by sizes begins with all
    /// workers small, the last one on standby.
    ///
    /// # Errors
    /// A value of `config` is out of bounds, or there are too few workers for the design.
    pub fn new(design: Design, config: ControlConfig, options: Options) -> Result<Self, ConfigError> {
        config.check()?;
        check_workers(design, config.workers, options)?;
        check_domains(design, &config, options)?;
        let mut plan = Plan { domains: config.domains, ..Plan::all_small(config.workers) };
        if design == Design::HandOff {
            for domain in plan.domains() {
                // Each domain has some of both, if it has more than one worker.
                let handoff = options.handoff_workers.min(domain.len() - 1).max(1);
                plan.roles[domain][handoff..].fill(Role::Large);
            }
        }
        if design.counts_sizes() {
            let bytes = match config.threshold {
                Threshold::Auto => THRESHOLD_BEFORE_FIRST_EPOCH_BYTES,
                Threshold::Static(bytes) => bytes,
            };
            plan.threshold = SizeClass::of(bytes);
        }
        let (smoothed, fetched) = (Smoothed::new(), Smoothed::new());
        let costs = smoothed.costs(config.cost);
        let decision = Decision::new(design.name(), &plan, 0, (1.0, 1.0), config.cost, &costs);
        let mut policy = Self { design, options, config, smoothed, fetched, plan, decision };
        policy.decide(0);
        Ok(policy)
    }

    /// The design.
    pub fn design(&self) -> Design {
        self.design
    }

    /// The plan in force.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The numbers behind the plan in force.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Goes on under another configuration, with all that was learnt of sizes, and makes a plan for it at once.
    ///
    /// # Errors
    /// A value of `config` is out of bounds, or there are too few workers for the design. Nothing has changed then.
    pub fn reconfigure(&mut self, config: ControlConfig, options: Options) -> Result<(), ConfigError> {
        config.check()?;
        check_workers(self.design, config.workers, options)?;
        check_domains(self.design, &config, options)?;
        (self.config, self.options) = (config, options);
        if self.design.counts_sizes() {
            self.plan.threshold = match config.threshold {
                Threshold::Static(bytes) => SizeClass::of(bytes),
                Threshold::Auto if self.plan.epoch == 0 => SizeClass::of(THRESHOLD_BEFORE_FIRST_EPOCH_BYTES),
                Threshold::Auto => self.smoothed.percentile(config.percentile, None),
            };
        }
        self.decide(self.decision.requests);
        Ok(())
    }

    /// The configuration in force, and the options of the design.
    pub fn config(&self) -> (ControlConfig, Options) {
        (self.config, self.options)
    }

    /// The duties of each worker under the plan in force.
    pub fn assignment(&self) -> Assignment {
        Assignment::of(self.design, &self.plan, self.options)
    }

    /// Makes the worker on standby large, to be called when it gets a large request: it "then becomes a large
    /// core" (Minos §3.1) until the next epoch with requests ends.
    pub fn promote_standby(&mut self) {
        let Some(standby) = self.plan.standby() else { return };
        self.plan.roles[standby.index()] = Role::Large;
        self.decision = self.decision.clone().with_roles(&self.plan);
    }

    /// Ends an epoch with these `requests`; returns the plan for the next. An
    /// epoch without requests changes nothing.
    pub fn epoch(&mut self, requests: &SizeHistogram) -> &Plan {
        self.epoch_above_flash(requests, &SizeHistogram::new())
    }

    /// As [`Policy::epoch`], where `fetched` items of the requests' were on flash. Their requests are served by large
    /// workers, whatever their size, and count as large ones.
    pub fn epoch_above_flash(&mut self, requests: &SizeHistogram, fetched: &SizeHistogram) -> &Plan {
        let total = requests.total();
        if total == 0 || !self.design.counts_sizes() {
            self.decision.requests = total;
            return &self.plan;
        }
        self.smoothed.update(self.config.alpha, requests);
        self.fetched.update(self.config.alpha, fetched);
        self.plan.epoch += 1;
        if self.config.threshold == Threshold::Auto {
            let previous = (self.plan.epoch > 1).then_some(self.plan.threshold);
            self.plan.threshold = self.smoothed.percentile(self.config.percentile, previous);
        }
        self.decide(total);
        &self.plan
    }

    /// Fills in roles and ranges for the threshold of the plan.
    fn decide(&mut self, requests: u64) {
        let (plan, config) = (&mut self.plan, &self.config);
        let costs = self.smoothed.costs(config.cost);
        let costs = Costs::new(costs, self.fetched.iter(), config.cost, plan.threshold);
        let cost_share = costs.small_share(plan.threshold);
        if let Some(split) = split_of(self.design) {
            plan.ranges.clear();
            plan.fetchers.clear();
            // All domains get the same split: connections are dealt to them in turn, and a request that is small in
            // one should be small in all.
            for domain in plan.domains() {
                let roles = control::split_roles(split, domain.len(), cost_share);
                let (ranges, fetchers) = control::ranges(&costs, plan.threshold, &roles);
                plan.ranges.extend(ranges.into_iter().map(|range| range.moved_by(domain.start)));
                plan.roles[domain].copy_from_slice(&roles);
                plan.fetchers.push(fetchers as u16);
            }
        }
        let shares = (self.smoothed.share_up_to(plan.threshold), cost_share);
        self.decision =
            Decision::new(self.design.name(), plan, requests, shares, config.cost, &costs.classes);
    }
}

/// How the workers are split into small and large ones, where the sizes say so.
fn split_of(design: Design) -> Option<Split> {
    match design {
        Design::SizeAware => Some(Split::Up),
        Design::Helping | Design::WorkConserving => Some(Split::OneMoreLarge),
        Design::KeyHash | Design::HandOff | Design::Stealing => None,
    }
}

/// Checks that there are enough workers for the design.
fn check_workers(design: Design, workers: usize, options: Options) -> Result<(), ConfigError> {
    let handoff = options.handoff_workers;
    let is_allowed = (1..=HANDOFF_WORKERS_MAX).contains(&handoff);
    if !is_allowed || (design == Design::HandOff && handoff >= workers) {
        return Err(ConfigError::HandOff { handoff, workers });
    }
    Ok(())
}

/// Checks that each domain has workers, and that the design runs in several, if there are several.
fn check_domains(design: Design, config: &ControlConfig, options: Options) -> Result<(), ConfigError> {
    let is_for_one = !design.is_served() || options.standby == Standby::TurnsLarge;
    if config.domains.is_one() || (config.domains.fits(config.workers) && !is_for_one) {
        return Ok(());
    }
    Err(ConfigError::Domains { design, workers: config.workers })
}
