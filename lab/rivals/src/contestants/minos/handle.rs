//! A thread's handle of a table: reading and writing, the same for all modes of data access.

use super::NOW;
use minos_base::KeyHash;
use minos_engine::{Access, AnyWriter, Crcw, Crew, Engine, Entry, Erew, Mode, Owner, Put, Staged};
use std::sync::Arc;

/// A thread's handle of a table.
pub(super) trait Handle: Send + 'static {
    /// The reaction to full memory.
    type Mode: Mode;
    /// The threads that may read and write.
    type Access: Access;

    /// Splits the handle into the table to read from and the writer.
    fn split(&mut self) -> (&Table<Self>, impl Writer<Mode = Self::Mode, Access = Self::Access>);
}

pub(super) type Table<H> = Engine<<H as Handle>::Mode, <H as Handle>::Access>;

/// The writing half of a handle.
pub(super) trait Writer {
    type Mode: Mode;
    type Access: Access;

    fn entry<'a>(&'a mut self, hash: KeyHash, key: &'a [u8]) -> Entry<'a, Self::Mode, Self::Access>;

    /// Stores a value whose key was staged. If memory is short, the old value stays; it is the same.
    fn put_staged(&mut self, staged: &Staged<'_>, put: &Put<'_>);

    /// Stores a burst of values. If memory is short, the old value stays; it is the same.
    fn put_many(&mut self, puts: &[Put<'_>]);
}

/// A table that belongs to one thread.
pub(super) struct Own<M: Mode>(pub(super) Engine<M, Erew>);

/// A table that any thread reads, and the partitions that this thread writes.
pub(super) struct Owned<M: Mode> {
    pub(super) engine: Arc<Engine<M, Crew>>,
    pub(super) owner: Owner<M>,
}

/// A table that any thread reads and writes.
pub(super) struct Shared<M: Mode>(pub(super) Arc<Engine<M, Crcw>>);

impl<M: Mode> Handle for Own<M> {
    type Mode = M;
    type Access = Erew;

    fn split(&mut self) -> (&Engine<M, Erew>, impl Writer<Mode = M, Access = Erew>) {
        (&self.0, &self.0)
    }
}

impl<M: Mode> Handle for Shared<M>
where
    Engine<M, Crcw>: Send + Sync,
{
    type Mode = M;
    type Access = Crcw;

    fn split(&mut self) -> (&Engine<M, Crcw>, impl Writer<Mode = M, Access = Crcw>) {
        (&*self.0, &*self.0)
    }
}

impl<M: Mode> Handle for Owned<M>
where
    Engine<M, Crew>: Send + Sync,
{
    type Mode = M;
    type Access = Crew;

    fn split(&mut self) -> (&Engine<M, Crew>, impl Writer<Mode = M, Access = Crew>) {
        (&*self.engine, &mut self.owner)
    }
}

impl<M: Mode, A: AnyWriter> Writer for &Engine<M, A> {
    type Mode = M;
    type Access = A;

    #[inline]
    fn entry<'a>(&'a mut self, hash: KeyHash, key: &'a [u8]) -> Entry<'a, M, A> {
        Engine::entry(self, hash, key, NOW)
    }

    #[inline]
    fn put_staged(&mut self, staged: &Staged<'_>, put: &Put<'_>) {
        let _ = Engine::put_staged(self, staged, put, NOW);
    }

    #[inline]
    fn put_many(&mut self, puts: &[Put<'_>]) {
        Engine::put_many(self, puts, NOW, |_, _| ());
    }
}

impl<M: Mode> Writer for &mut Owner<M> {
    type Mode = M;
    type Access = Crew;

    #[inline]
    fn entry<'a>(&'a mut self, hash: KeyHash, key: &'a [u8]) -> Entry<'a, M, Crew> {
        Owner::entry(self, hash, key, NOW)
    }

    #[inline]
    fn put_staged(&mut self, staged: &Staged<'_>, put: &Put<'_>) {
        let _ = Owner::put_staged(self, staged, put, NOW);
    }

    #[inline]
    fn put_many(&mut self, puts: &[Put<'_>]) {
        Owner::put_many(self, puts, NOW, |_, _| ());
    }
}
