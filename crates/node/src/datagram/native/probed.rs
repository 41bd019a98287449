//! Operations that the worker's probe has chosen.

use std::{net::SocketAddr, time::Instant};

use minos_base::SizeClass;
use minos_engine::Mode;
use minos_proto::native::{Opcode, Operation};

use super::{Egress, HandOff, burst::Burst};
use crate::ops::Placement;

impl<M: Mode, P: Placement, E: Egress, H: HandOff> Burst<'_, M, P, E, H> {
    /// Keeps an operation of a chunk that was executed from `begun` on. Large ones go on elsewhere, and only their key is
    /// noted.
    #[cold]
    pub(super) fn look_at(&mut self, operation: &Operation<'_>, peer: SocketAddr, begun: Instant) {
        if !operation.opcode.names_item() {
            return;
        }
        let (hash, key) = (operation.hash, operation.key);
        let class = match operation.detail.value_bytes {
            0 => self.cx.store.stage(hash).size_class().unwrap_or(SizeClass::MIN),
            bytes => SizeClass::of(bytes.into()),
        };
        let probe = self.cx.probe;
        if self.cx.placement.serves(class) {
            probe.executed(
                name(operation.opcode),
                (Some(hash), key),
                class.bytes_min(),
                (begun, self.cx.now),
            );
            self.looked_at = Some(peer);
        } else {
            probe.note_chosen((hash, key), class.bytes_min(), self.cx.now);
        }
    }
}

/// The operation by memcached's name for it.
fn name(opcode: Opcode) -> &'static str {
    match opcode {
        Opcode::Get => "get",
        Opcode::GetTouch => "gat",
        Opcode::Put => "set",
        Opcode::Add => "add",
        Opcode::Replace => "replace",
        Opcode::Append => "append",
        Opcode::Prepend => "prepend",
        Opcode::Compare => "cas",
        Opcode::Delete => "delete",
        Opcode::Touch => "touch",
        Opcode::Incr => "incr",
        Opcode::Decr => "decr",
        _ => "other",
    }
}
