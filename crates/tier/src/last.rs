//! The end of a session: what is on the device then, the next start misses if it is gone.

use crate::{
    open::{Driver, OpenError, run},
    tier::Tier,
};
use minos_device::LaneOptions;
use minos_flash::{Damage, Recovery};
use std::time::Duration;

/// What the device had to say at the end of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// Nothing: the end had no time left. The next start compares less.
    Nothing,
    /// What each segment holds.
    Whole,
    /// The same, of what is damaged already.
    Damaged(Damage),
}

impl Tier {
    /// Notes on the device what every segment holds, so that the next start tells what is damaged meanwhile. To be called
    /// once the keeper is gone and everything is durable, unless it `is_over` before.
    ///
    /// Reads a page of each segment, and all of the few that are not sealed. Waits for an answer of the device no longer
    /// than `patience`.
    ///
    /// # Errors
    /// The device failed or cannot be used.
    pub fn note_end(&self, patience: Duration, is_over: impl Fn() -> bool) -> Result<Noted, OpenError> {
        let pool_bytes = (8 * self.layout().journal_bytes() as usize).max(2 << 20);
        let options = LaneOptions { pool_bytes, ..self.options.write_lane };
        let mut driver = Driver::new(&self.device, &options)?.waiting_for(patience);
        let survey = run(&mut driver, (Recovery::survey(), is_over), |_| {})?;
        let Some((superblock, found)) = survey else { return Ok(Noted::Nothing) };
        let stats = self.engine.stats();
        let (number, steps) = found.last_journal(&superblock, stats.items + stats.cold_items);
        // A region knows of a journal before that is on the device.
        self.engine.know_journal(number);
        for step in steps {
            driver.run_all(step)?;
        }
        Ok(found.damage.map_or(Noted::Whole, Noted::Damaged))
    }
}
