//! The file of a dump. All numbers are little-endian.
//!
//! ```text
//! file     "MINOSDMP" 8, version 4 (1), zero 4, records, end
//! record   tag 4 (1), key bytes 4, flags 4, value bytes 4, expires 8 (ms since 1970, 0 never),
//!          key, value, sum 8 (XXH3-64 of all before it in the record)
//! end      tag 4 (0), zero 4, number of records 8, sum 8 (of the 16 bytes before)
//! ```

use std::{
    fs::{File, OpenOptions},
    io::{BufReader, BufWriter, Read, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use anyhow::{Context, bail, ensure};
use xxhash_rust::xxh3::Xxh3Default;

use super::{Item, Sink, Source, unix_ms};

const MAGIC: &[u8; 8] = b"MINOSDMP";
const VERSION: u32 = 1;
const RECORD: u32 = 1;
const END: u32 = 0;
/// Longest key, in bytes: Redis' are bounded by this where it serves as a cache.
const KEY_BYTES_MAX: u32 = 64 << 10;
/// Bytes of values in one step.
const BATCH_BYTES: usize = 1 << 20;
const BATCH_ITEMS: usize = 1000;

/// Writes a dump.
pub(super) struct DumpWriter {
    file: BufWriter<File>,
    records: u64,
}

impl DumpWriter {
    /// Creates the file, which only its owner may read; fails if it exists.
    pub(super) fn create(path: &Path) -> anyhow::Result<Self> {
        let mut file =
            BufWriter::new(OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?);
        file.write_all(MAGIC)?;
        file.write_all(&VERSION.to_le_bytes())?;
        file.write_all(&[0; 4])?;
        Ok(Self { file, records: 0 })
    }

    /// Writes `parts`, then their sum.
    fn write(&mut self, parts: &[&[u8]]) -> anyhow::Result<()> {
        let mut sum = Xxh3Default::new();
        for part in parts {
            sum.update(part);
            self.file.write_all(part)?;
        }
        Ok(self.file.write_all(&sum.digest().to_le_bytes())?)
    }
}

impl Sink for DumpWriter {
    fn put(&mut self, items: &[Item]) -> anyhow::Result<Vec<String>> {
        for Item { key, flags, expires_unix_ms, value } in items {
            let mut head = [0; 24];
            let numbers = [RECORD, u32::try_from(key.len())?, *flags, u32::try_from(value.len())?];
            head.chunks_exact_mut(4)
                .zip(numbers)
                .for_each(|(to, number)| to.copy_from_slice(&number.to_le_bytes()));
            head[16..].copy_from_slice(&expires_unix_ms.to_le_bytes());
            self.write(&[&head, key, value])?;
            self.records += 1;
        }
        Ok(Vec::new())
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        let records = self.records.to_le_bytes();
        self.write(&[&END.to_le_bytes(), &[0; 4], &records])?;
        self.file.flush()?;
        Ok(self.file.get_ref().sync_all()?)
    }
}

/// Reads a dump.
pub(super) struct DumpReader<R> {
    file: R,
    records: u64,
    has_ended: bool,
    /// Why no more can be read.
    damage: Option<anyhow::Error>,
}

impl DumpReader<BufReader<File>> {
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        Self::new(BufReader::new(File::open(path)?))
    }
}

impl<R: Read> DumpReader<R> {
    fn new(mut file: R) -> anyhow::Result<Self> {
        let mut head = [0; 16];
        file.read_exact(&mut head).context("this is no dump")?;
        ensure!(head.starts_with(MAGIC), "this is no dump");
        let version = u32_at(&head, 8);
        ensure!(version == VERSION, "a dump of version {version}; this program reads version {VERSION}");
        Ok(Self { file, records: 0, has_ended: false, damage: None })
    }

    /// The next record; `None` at the end of a whole dump.
    fn record(&mut self) -> anyhow::Result<Option<Item>> {
        let mut sum = Xxh3Default::new();
        let mut tag = [0; 8];
        self.fill(&mut tag, &mut sum)?;
        match u32_at(&tag, 0) {
            RECORD => self.item(u32_at(&tag, 4), sum).map(Some),
            END => {
                let mut records = [0; 8];
                self.fill(&mut records, &mut sum)?;
                self.check(&sum)?;
                let expected = u64::from_le_bytes(records);
                ensure!(expected == self.records, "{} of {expected} records are there", self.records);
                let behind = (&mut self.file).take(1).read_to_end(&mut Vec::new())?;
                ensure!(behind == 0, "something follows its end record: each dump needs a file of its own");
                self.has_ended = true;
                Ok(None)
            }
            tag => bail!("tag {tag} is none"),
        }
    }

    fn item(&mut self, key_bytes: u32, mut sum: Xxh3Default) -> anyhow::Result<Item> {
        let mut rest = [0; 16];
        self.fill(&mut rest, &mut sum)?;
        ensure!(key_bytes <= KEY_BYTES_MAX, "a key of {key_bytes} bytes");
        let key = self.bytes(key_bytes, &mut sum)?;
        let value = self.bytes(u32_at(&rest, 4), &mut sum)?;
        self.check(&sum)?;
        self.records += 1;
        let expires_unix_ms = u64::from_le_bytes(std::array::from_fn(|index| rest[8 + index]));
        Ok(Item { key, flags: u32_at(&rest, 0), expires_unix_ms, value })
    }

    /// Memory is taken as bytes are read, so that a length alone takes none.
    fn bytes(&mut self, length: u32, sum: &mut Xxh3Default) -> anyhow::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let read = (&mut self.file).take(length.into()).read_to_end(&mut bytes)?;
        ensure!(read == length as usize, "it ends within a record");
        sum.update(&bytes);
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8], sum: &mut Xxh3Default) -> anyhow::Result<()> {
        self.file.read_exact(bytes).context("it ends before its end record")?;
        sum.update(bytes);
        Ok(())
    }

    fn check(&mut self, sum: &Xxh3Default) -> anyhow::Result<()> {
        let mut expected = [0; 8];
        self.file.read_exact(&mut expected).context("it ends before its end record")?;
        ensure!(sum.digest() == u64::from_le_bytes(expected), "the sum is wrong");
        Ok(())
    }
}

impl<R: Read> Source for DumpReader<R> {
    fn next(&mut self) -> anyhow::Result<Option<Vec<Item>>> {
        if let Some(damage) = self.damage.take() {
            return Err(damage);
        }
        if self.has_ended {
            return Ok(None);
        }
        let (mut items, mut bytes, now_ms) = (Vec::new(), 0, unix_ms());
        while items.len() < BATCH_ITEMS && bytes < BATCH_BYTES {
            let records = self.records;
            let damaged = || format!("damaged behind record {records}; those before were restored");
            let item = match self.record().with_context(damaged) {
                Ok(Some(item)) => item,
                Ok(None) => break,
                // The records before it come first.
                Err(error) => {
                    self.damage = Some(error);
                    break;
                }
            };
            if item.expires_unix_ms == 0 || item.expires_unix_ms > now_ms {
                bytes += item.value.len();
                items.push(item);
            }
        }
        Ok(Some(items))
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|index| bytes[at + index]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items() -> Vec<Item> {
        let item = |key: &[u8], flags, expires_unix_ms, value: &[u8]| Item {
            key: key.to_vec(),
            flags,
            expires_unix_ms,
            value: value.to_vec(),
        };
        vec![
            item(b"a", 7, 0, b"1"),
            item(b"\0 b", u32::MAX, unix_ms() + 100_000, &[9; 5000]),
            item(&[b'k'; 300], 0, 0, b""),
        ]
    }

    fn dump(items: &[Item]) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dump");
        let mut writer = DumpWriter::create(&path).unwrap();
        writer.put(items).unwrap();
        writer.finish().unwrap();
        assert!(DumpWriter::create(&path).is_err(), "an existing file is never replaced");
        std::fs::read(path).unwrap()
    }

    fn read(bytes: &[u8]) -> anyhow::Result<Vec<Item>> {
        let mut reader = DumpReader::new(bytes)?;
        let mut items = Vec::new();
        while let Some(batch) = reader.next()? {
            items.extend(batch);
        }
        Ok(items)
    }

    #[test]
    fn items_come_back() {
        let items = items();
        assert_eq!(read(&dump(&items)).unwrap(), items);
        let expired = Item { expires_unix_ms: 1, ..items[0].clone() };
        assert_eq!(read(&dump(&[expired])).unwrap(), []);
    }

    #[test]
    fn damage_is_found_wherever_it_is() {
        let items = items();
        let whole = dump(&items);
        for length in 0..whole.len() {
            assert!(read(&whole[..length]).is_err(), "{length} bytes");
        }
        // What is before the damage is there.
        let mut reader = DumpReader::new(&whole[..whole.len() - 1]).unwrap();
        assert_eq!(reader.next().unwrap(), Some(items));
        assert!(reader.next().unwrap_err().to_string().contains("damaged behind record 3"));
        // Another dump, too.
        assert!(read(&[&whole[..], &whole].concat()).is_err() && read(&[&whole[..], &[0]].concat()).is_err());
        for at in (0..whole.len()).filter(|at| !(12..16).contains(at)) {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            assert!(read(&damaged).is_err(), "byte {at}");
        }
    }
}
