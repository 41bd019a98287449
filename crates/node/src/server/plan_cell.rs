//! The plan in force, shared with every worker.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use minos_sched::{Assignment, Decision, Plan, Policy};

use super::config::DispatchChoice;

/// A plan and the choice and numbers behind it.
#[derive(Debug)]
pub(crate) struct InForce {
    pub(crate) choice: DispatchChoice,
    pub(crate) plan: Plan,
    /// The numbers behind the plan.
    pub(crate) decision: Decision,
    pub(crate) assignment: Assignment,
}

impl InForce {
    /// The present plan of `policy`, the policy of `choice`.
    pub(crate) fn of(choice: DispatchChoice, policy: &Policy) -> Self {
        let (plan, decision) = (policy.plan().clone(), policy.decision().clone());
        Self { choice, plan, decision, assignment: policy.assignment() }
    }
}

/// Holds the plan in force. Workers check a counter that seldom changes, and lock only when it has changed.
pub(crate) struct PlanCell {
    version: AtomicU64,
    current: Mutex<Arc<InForce>>,
}

impl PlanCell {
    pub(crate) fn new(in_force: InForce) -> Self {
        Self { version: AtomicU64::new(1), current: Mutex::new(Arc::new(in_force)) }
    }

    /// Number of plans so far. A worker that sees a new number finds that plan, or a later one, in force.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        // The lock orders the plan itself.
        self.version.load(Ordering::Relaxed)
    }

    pub(crate) fn in_force(&self) -> Arc<InForce> {
        Arc::clone(&self.lock())
    }

    /// Puts a plan in force and returns its version.
    pub(crate) fn publish(&self, in_force: InForce) -> u64 {
        *self.lock() = Arc::new(in_force);
        self.version.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Arc<InForce>> {
        // The value is replaced as a whole, so it is never half written.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
