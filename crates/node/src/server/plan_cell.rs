//! The plan in force, where every worker can see it.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use minos_sched::{Assignment, Decision, Plan, Policy};

use super::config::DispatchChoice;

/// What the workers go by until the next plan.
#[derive(Debug)]
pub(crate) struct InForce {
    pub(crate) choice: DispatchChoice,
    pub(crate) plan: Plan,
    /// The numbers behind the plan.
    pub(crate) decision: Decision,
    pub(crate) assignment: Assignment,
}

impl InForce {
    /// What `policy`, which is that of `choice`, says now.
    pub(crate) fn of(choice: DispatchChoice, policy: &Policy) -> Self {
        let (plan, decision) = (policy.plan().clone(), policy.decision().clone());
        Self { choice, plan, decision, assignment: policy.assignment() }
    }
}

/// Holds what is in force. Workers look at a counter that seldom changes, and take the lock only when it has.
pub(crate) struct PlanCell {
    version: AtomicU64,
    current: Mutex<Arc<InForce>>,
}

impl PlanCell {
    pub(crate) fn new(in_force: InForce) -> Self {
        Self { version: AtomicU64::new(1), current: Mutex::new(Arc::new(in_force)) }
    }

    /// Counts the plans; whoever has seen this number has the plan in force.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        // The lock orders the plan itself.
        self.version.load(Ordering::Relaxed)
    }

    pub(crate) fn in_force(&self) -> Arc<InForce> {
        Arc::clone(&self.lock())
    }

    /// Puts a plan in force; its version.
    pub(crate) fn publish(&self, in_force: InForce) -> u64 {
        *self.lock() = Arc::new(in_force);
        self.version.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Arc<InForce>> {
        // A value that is replaced as a whole is never half written.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
