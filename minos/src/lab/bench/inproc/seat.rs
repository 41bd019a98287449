//! One thread's access to a table, in each mode of access (MICA §4.1.2).

use std::sync::Arc;

use minos_base::{KeyHash, Seconds};
use minos_engine::{
    Access, AnyWriter, Crcw, CreateError, Crew, Engine, Entry, Erew, Mode, Owner, Put, StoreConfig,
};

/// The time never changes: nothing expires.
pub(super) const NOW: Seconds = 2;

/// The access of one thread to a table.
pub(super) trait Seat: Send + Sized {
    type Mode: Mode;
    type Access: Access;

    /// Makes `seats` seats, which share one table of `config.memory_bytes` or own one each of an equal share.
    fn arrange(config: &StoreConfig, seats: usize) -> Result<Vec<Self>, CreateError>;

    fn engine(&self) -> &Engine<Self::Mode, Self::Access>;

    fn reads(&self, _: KeyHash) -> bool {
        true
    }

    fn writes(&self, hash: KeyHash) -> bool;

    fn loads(&self, hash: KeyHash) -> bool {
        self.writes(hash)
    }

    fn entry<'a>(&'a mut self, hash: KeyHash, key: &'a [u8]) -> Entry<'a, Self::Mode, Self::Access>;

    /// Stores `puts`; `f` gets the index of each, and true if it was stored.
    fn put_many(&mut self, puts: &[Put<'_>], f: impl FnMut(usize, bool));
}

/// EREW: a private table, for the keys whose hashes begin with its number.
pub(super) struct Alone<M: Mode> {
    engine: Engine<M, Erew>,
    number: usize,
    shard_bits: u32,
}

/// CREW: the shared table; this thread writes some of its partitions.
pub(super) struct Owning<M: Mode>(Owner<M>);

/// CRCW: the shared table.
pub(super) struct Sharing<M: Mode> {
    engine: Arc<Engine<M, Crcw>>,
    number: usize,
    seats: usize,
}

impl<M: Mode> Seat for Alone<M> {
    type Mode = M;
    type Access = Erew;

    fn arrange(config: &StoreConfig, seats: usize) -> Result<Vec<Self>, CreateError> {
        let shard_bits = seats.ilog2();
        let memory_bytes = config.memory_bytes / seats as u64;
        let config = StoreConfig { shard_bits, memory_bytes, ..config.clone() };
        (0..seats).map(|number| Ok(Self { engine: Engine::create(&config)?, number, shard_bits })).collect()
    }

    #[inline]
    fn engine(&self) -> &Engine<M, Erew> {
        &self.engine
    }

    fn reads(&self, hash: KeyHash) -> bool {
        hash.partition(self.shard_bits) == self.number
    }

    fn writes(&self, hash: KeyHash) -> bool {
        self.reads(hash)
    }

    fn entry<'a>(&'a mut self, hash: KeyHash, key: &'a [u8]) -> Entry<'a, M, Erew> {
        self.engine.entry(hash, key, NOW)
    }

    #[inline]
    fn put_many(&mut self, puts: &[Put<'_>], f: impl FnMut(usize, bool)) {
        put_many(&self.engine, puts, f);
    }
}

impl<M: Mode> Seat for Owning<M>
where
    Engine<M, Crew>: Send + Sync,
{
    type Mode = M;
    type Access = Crew;

    fn arrange(config: &StoreConfig, seats: usize) -> Result<Vec<Self>, CreateError> {
        let (_, owners) = Engine::create_owned(config, seats)?;
        Ok(owners.into_iter().map(Self).collect())
    }

    #[inline]
    fn engine(&self) -> &Engine<M, Crew> {
        self.0.engine()
    }

    fn writes(&self, hash: KeyHash) -> bool {
        self.0.owns(hash)
    }

    fn entry<'a>(&'a mut self, hash: KeyHash, key: &'a [u8]) -> Entry<'a, M, Crew> {
        self.0.entry(hash, key, NOW)
    }

    #[inline]
    fn put_many(&mut self, puts: &[Put<'_>], mut f: impl FnMut(usize, bool)) {
        self.0.put_many(puts, NOW, |at, stored| f(at, stored.is_ok()));
    }
}

impl<M: Mode> Seat for Sharing<M>
where
    Engine<M, Crcw>: Send + Sync,
{
    type Mode = M;
    type Access = Crcw;

    fn arrange(config: &StoreConfig, seats: usize) -> Result<Vec<Self>, CreateError> {
        let engine = Arc::new(Engine::create(config)?);
        Ok((0..seats).map(|number| Self { engine: Arc::clone(&engine), number, seats }).collect())
    }

    #[inline]
    fn engine(&self) -> &Engine<M, Crcw> {
        &self.engine
    }

    fn writes(&self, _: KeyHash) -> bool {
        true
    }

    fn loads(&self, hash: KeyHash) -> bool {
        hash.bucket_bits() as usize % self.seats == self.number
    }

    fn entry<'a>(&'a mut self, hash: KeyHash, key: &'a [u8]) -> Entry<'a, M, Crcw> {
        self.engine.entry(hash, key, NOW)
    }

    #[inline]
    fn put_many(&mut self, puts: &[Put<'_>], f: impl FnMut(usize, bool)) {
        put_many(&self.engine, puts, f);
    }
}

#[inline]
fn put_many<M: Mode, A: AnyWriter>(engine: &Engine<M, A>, puts: &[Put<'_>], mut f: impl FnMut(usize, bool)) {
    engine.put_many(puts, NOW, |at, stored| f(at, stored.is_ok()));
}
