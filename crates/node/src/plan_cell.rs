//! The plan in force, where every worker can see it.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use minos_sched::{Decision, Plan};

/// Holds the plan in force and the numbers behind it. Workers look at a counter that seldom changes, and
/// take the lock only when it has.
pub(crate) struct PlanCell {
    version: AtomicU64,
    current: Mutex<(Arc<Plan>, Arc<Decision>)>,
}

impl PlanCell {
    pub(crate) fn new(plan: &Plan, decision: &Decision) -> Self {
        let current = (Arc::new(plan.clone()), Arc::new(decision.clone()));
        Self { version: AtomicU64::new(1), current: Mutex::new(current) }
    }

    /// Counts the plans; whoever has seen this number has the plan in force.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        // The lock orders the plan itself.
        self.version.load(Ordering::Relaxed)
    }

    pub(crate) fn plan(&self) -> Arc<Plan> {
        Arc::clone(&self.lock().0)
    }

    pub(crate) fn decision(&self) -> Arc<Decision> {
        Arc::clone(&self.lock().1)
    }

    /// Puts a plan in force.
    pub(crate) fn publish(&self, plan: &Plan, decision: &Decision) {
        *self.lock() = (Arc::new(plan.clone()), Arc::new(decision.clone()));
        self.version.fetch_add(1, Ordering::Relaxed);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (Arc<Plan>, Arc<Decision>)> {
        // A value that is replaced as a whole is never half written.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
