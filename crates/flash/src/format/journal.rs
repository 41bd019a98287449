//! The use of every segment.

use super::{
    Fault, Life, Seal,
    bytes::{put, u16_at, u32_at, u64_at},
};

const MARK: u64 = u64::from_le_bytes(*b"MinosFlJ");
const HEAD_BYTES: usize = 48;
const ENTRY_BYTES: usize = 8;
const ITEMS: usize = 44;
/// Where an entry says what the segment holds.
const HELD: usize = 5;
const HELD_PAGES: usize = 6;

/// The use of a segment as recovery must know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Holds nothing.
    Free,
    /// Reserved, open or sealed: it may hold records of this life.
    Live(Life),
    /// The device failed here; never used again.
    Bad,
    /// As live, but its records have begun to move out: it ends before any other segment does.
    Leaving(Life),
    /// As leaving; the device failed here.
    Failing(Life),
}

/// A snapshot of the table, written whole. The valid one with the highest number is in force.
///
/// ```text
/// 0   checksum of all that follows, seeded with the place
/// 8   mark "MinosFlJ"   16  table          24  number
/// 32  next life         36  least life     40  segments   44  items at a clean stop + 1 (0: none)
/// 48  for each segment: life (4), use (1: 0 free, 1 live, 2 bad, 3 leaving, 4 failing),
///     held (1: 0 not said, 1 sealed, 2 pages, said at a clean stop only), number of these pages (2)
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journal {
    /// The table.
    pub table: u64,
    /// Counts journals of this table.
    pub number: u64,
    /// No segment has had this life or a later one.
    pub next_life: Life,
    /// Segments of earlier lives are dead (`flush_all`).
    pub least_life: Life,
    /// Items of the table, of the last journal of a session: all is durable, and nothing is written before the next one.
    pub items: Option<u32>,
    /// The segments.
    pub uses: Vec<Use>,
    /// What is durable in each.
    pub held: Vec<Held>,
}

impl Journal {
    /// Bytes of the journal of so many segments.
    pub fn bytes(segments: u32) -> usize {
        HEAD_BYTES + segments as usize * ENTRY_BYTES
    }

    /// The segments that may hold records, and the lives of these.
    pub(crate) fn lives(&self) -> impl Iterator<Item = (u32, Life)> {
        self.uses.iter().enumerate().filter_map(|(segment, used)| match *used {
            Use::Live(life) | Use::Leaving(life) | Use::Failing(life) => Some((segment as u32, life)),
            Use::Free | Use::Bad => None,
        })
    }

    /// Composes the copy that lies at byte `at` of the device, `len` bytes long.
    pub fn encode(&self, seal: Seal, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        put(&mut bytes, 8, &MARK.to_le_bytes());
        put(&mut bytes, 16, &self.table.to_le_bytes());
        put(&mut bytes, 24, &self.number.to_le_bytes());
        put(&mut bytes, 32, &self.next_life.0.to_le_bytes());
        put(&mut bytes, 36, &self.least_life.0.to_le_bytes());
        put(&mut bytes, 40, &(self.uses.len() as u32).to_le_bytes());
        put(&mut bytes, ITEMS, &self.items.map_or(0, |items| items.saturating_add(1)).to_le_bytes());
        let entries = bytes[HEAD_BYTES..].chunks_exact_mut(ENTRY_BYTES);
        for (entry, (used, held)) in entries.zip(self.uses.iter().zip(&self.held)) {
            encode_entry(entry, *used, *held);
        }
        let sum = seal.sum(Life::NONE, at, &bytes[8..]);
        put(&mut bytes, 0, &sum.to_le_bytes());
        bytes
    }

    /// Reads the copy that lies at byte `at` of the device; `bytes` are all of it.
    pub fn decode(bytes: &[u8], seal: Seal, at: u64) -> Result<Self, Fault> {
        if bytes.len() < HEAD_BYTES {
            return Err(Fault::Short { len: bytes.len(), needed: HEAD_BYTES });
        }
        if u64_at(bytes, 8) != MARK {
            return Err(Fault::Mark(u64_at(bytes, 8)));
        }
        if seal.sum(Life::NONE, at, &bytes[8..]) != u64_at(bytes, 0) {
            return Err(Fault::Checksum);
        }
        let segments = u32_at(bytes, 40) as usize;
        let entries = bytes[HEAD_BYTES..].chunks_exact(ENTRY_BYTES);
        if segments > entries.len() {
            return Err(Fault::Length(segments as u64));
        }
        let uses = entries.clone().take(segments).map(decode_use).collect::<Result<_, _>>()?;
        Ok(Self {
            table: u64_at(bytes, 16),
            number: u64_at(bytes, 24),
            next_life: Life(u32_at(bytes, 32)),
            least_life: Life(u32_at(bytes, 36)),
            items: u32_at(bytes, ITEMS).checked_sub(1),
            uses,
            held: entries.take(segments).map(decode_held).collect(),
        })
    }
}

/// What a segment holds that verifies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Held {
    /// It is not known.
    #[default]
    Unknown,
    /// All its records, and their footers.
    Sealed,
    /// So many pages of records, and no footers.
    Pages(u16),
}

fn encode_entry(entry: &mut [u8], used: Use, held: Held) {
    let (life, use_code) = match used {
        Use::Free => (Life::NONE, 0),
        Use::Live(life) => (life, 1),
        Use::Bad => (Life::NONE, 2),
        Use::Leaving(life) => (life, 3),
        Use::Failing(life) => (life, 4),
    };
    let (held_code, pages) = match held {
        Held::Unknown => (0, 0),
        Held::Sealed => (1, 0),
        Held::Pages(pages) => (2, pages),
    };
    put(entry, 0, &life.0.to_le_bytes());
    (entry[4], entry[HELD]) = (use_code, held_code);
    put(entry, HELD_PAGES, &pages.to_le_bytes());
}

fn decode_held(entry: &[u8]) -> Held {
    match entry[HELD] {
        1 => Held::Sealed,
        2 => Held::Pages(u16_at(entry, HELD_PAGES)),
        _ => Held::Unknown,
    }
}

fn decode_use(entry: &[u8]) -> Result<Use, Fault> {
    match entry[4] {
        0 => Ok(Use::Free),
        1 => Ok(Use::Live(Life(u32_at(entry, 0)))),
        2 => Ok(Use::Bad),
        3 => Ok(Use::Leaving(Life(u32_at(entry, 0)))),
        4 => Ok(Use::Failing(Life(u32_at(entry, 0)))),
        other => Err(Fault::Use(other)),
    }
}
