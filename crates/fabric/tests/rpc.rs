//! Reads by messages: the tests of every fabric, and peers that keep no rule.

use minos_engine::{
    Backing, CacheMode, Mode, Store, StoreConfig, StoreMode,
    remote::{
        Completion, Fabric, Range, RemoteSketch,
        rig::{Beside, run},
    },
};
use minos_fabric::rpc::{RANGES_MAX, Rpc, WORDS_MAX, serve};
use minos_region::Image;
use std::{
    collections::HashMap,
    io::{self, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    thread::{self, JoinHandle},
};

fn memory() -> (Store, Image) {
    let config = StoreConfig { backing: Backing::Memfd, micro_shards: 16, ..StoreConfig::new(2 << 20) };
    let store = Store::create(&config).unwrap();
    let image = Image::from_descriptor(store.descriptor_to_read().unwrap()).unwrap();
    (store, image)
}

/// An engine whose readers ask over a stream of this kind, whose other end somebody answers.
fn beside<M: Mode, S: Read + Write + Send + 'static>(
    seed: u64,
    streams: impl FnOnce() -> (S, S),
    set_nonblocking: impl FnOnce(&S),
    answer: impl FnOnce(S, Image) + Send + 'static,
) -> Beside<M, Rpc<S>> {
    Beside::new(seed, Backing::Memfd, |engine| {
        let image = Image::from_descriptor(engine.descriptor_to_read().unwrap()).unwrap();
        let (here, there) = streams();
        set_nonblocking(&here);
        // It ends with the stream.
        thread::spawn(move || answer(there, image));
        let mut fabric = Rpc::default();
        assert_eq!(fabric.add(here), 0);
        fabric
    })
}

fn over_unix<M: Mode>(
    seed: u64,
    answer: impl FnOnce(UnixStream, Image) + Send + 'static,
) -> Beside<M, Rpc<UnixStream>> {
    beside(seed, || UnixStream::pair().unwrap(), |stream| stream.set_nonblocking(true).unwrap(), answer)
}

fn over_tcp<M: Mode>(seed: u64) -> Beside<M, Rpc<TcpStream>> {
    let streams = || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let there = listener.accept().unwrap().0;
        [&here, &there].iter().for_each(|stream| stream.set_nodelay(true).unwrap());
        (here, there)
    };
    let answer = |mut stream, image: Image| serve(&mut stream, image.view()).unwrap();
    beside(seed, streams, |stream| stream.set_nonblocking(true).unwrap(), answer)
}

#[test]
fn answers_beside_the_engine_were_true() {
    let answer = |mut stream, image: Image| serve(&mut stream, image.view()).unwrap();
    let counts = run(|seed| over_unix::<StoreMode>(seed, answer), (4, 3000)).unwrap();
    println!("{counts:?}");
    counts.are_at_least(100);
    let counts = run(|seed| over_unix::<CacheMode>(seed, answer), (3, 3000)).unwrap();
    println!("{counts:?}");
    counts.are_at_least(100);
    let counts = run(over_tcp::<StoreMode>, (3, 3000)).unwrap();
    println!("{counts:?}");
    counts.are_at_least(100);
}

/// Answers a request as it did the first time.
fn serve_what_was(stream: &mut UnixStream, image: &Image) -> io::Result<()> {
    let mut known = HashMap::new();
    loop {
        let mut head = [0; 4];
        stream.read_exact(&mut head)?;
        let mut request = head.to_vec();
        request.resize(4 + 12 * u32::from_le_bytes(head) as usize, 0);
        stream.read_exact(&mut request[4..])?;
        let reply = known.entry(request.clone()).or_insert_with(|| ask_once(request, image));
        stream.write_all(reply)?;
    }
}

/// The reply to one request.
fn ask_once(request: Vec<u8>, image: &Image) -> Vec<u8> {
    let mut both = Both(io::Cursor::new(request), Vec::new());
    serve(&mut both, image.view()).unwrap();
    both.1
}

/// A stream whose input is there, and whose output is kept.
struct Both(io::Cursor<Vec<u8>>, Vec<u8>);

impl Read for Both {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read(bytes)
    }
}

impl Write for Both {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.1.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn control_an_owner_that_answers_what_was_is_found() {
    let answer = |mut stream, image: Image| drop(serve_what_was(&mut stream, &image));
    let result = run(|seed| over_unix::<StoreMode>(seed, answer), (4, 3000));
    println!("{}", result.unwrap_err());
}

fn request(ranges: &[(u64, u32)]) -> Vec<u8> {
    let ranges_bytes = ranges.iter().flat_map(|(start, words)| {
        start.to_le_bytes().into_iter().chain(words.to_le_bytes()).collect::<Vec<_>>()
    });
    (ranges.len() as u32).to_le_bytes().into_iter().chain(ranges_bytes).collect()
}

#[test]
fn an_owner_answers_what_lies_in_its_memory_and_ends_with_any_other_request() {
    let (_store, image) = memory();
    let words = 2 << 17;
    for ranges in
        [&[(words, 1)][..], &[(words - 1, 2)], &[(0, 1), (u64::MAX, 1)], &[(u64::MAX, WORDS_MAX as u32)]]
    {
        assert_eq!(ask_once(request(ranges), &image), [0xff; 4], "{ranges:?}");
    }
    assert_eq!(ask_once(request(&[(words - 1, 1)]), &image).len(), 4 + 8);
    assert_eq!(ask_once(request(&[]), &image), [0; 4]);
    assert_eq!(ask_once(request(&[(0, 1); RANGES_MAX]), &image).len(), 4 + 8 * RANGES_MAX);
    let whole = request(&[(0, 8)]);
    for bad in [
        request(&[(0, 1); RANGES_MAX + 1]),
        request(&[(0, WORDS_MAX as u32), (0, 1)]),
        request(&[(0, u32::MAX); RANGES_MAX]),
        vec![0xff; 4],
        whole[..3].to_vec(),
        whole[..whole.len() - 1].to_vec(),
    ] {
        let mut both = Both(io::Cursor::new(bad), Vec::new());
        assert!(serve(&mut both, image.view()).is_err());
        assert!(both.1.is_empty());
    }
}

/// A fabric whose peer receives a request, and sends these bytes.
fn answered_by(reply: Vec<u8>, closes: bool) -> (Rpc<UnixStream>, JoinHandle<UnixStream>) {
    let (here, mut there) = UnixStream::pair().unwrap();
    here.set_nonblocking(true).unwrap();
    let peer = thread::spawn(move || {
        there.read_exact(&mut [0; 16]).unwrap();
        // It may not be taken as a whole.
        there.set_nonblocking(true).unwrap();
        let _ = there.write_all(&reply);
        if closes {
            let _ = there.shutdown(Shutdown::Both);
        }
        there
    });
    let mut fabric = Rpc::default();
    assert_eq!(fabric.add(here), 0);
    (fabric, peer)
}

/// The words of the only read that ends.
fn ended(fabric: &mut Rpc<UnixStream>) -> Option<Vec<u64>> {
    let mut ended = Vec::new();
    while ended.is_empty() {
        fabric.poll(|Completion { token, words }| ended.push((token, words.map(<[u64]>::to_vec))));
        thread::yield_now();
    }
    assert_eq!((ended.len(), ended[0].0), (1, 7));
    ended.remove(0).1
}

#[test]
fn a_peer_that_keeps_no_rule_is_lost() {
    let range = [Range { start: 0, words: 2 }];
    let good: Vec<u8> = [2, 0, 0, 0].into_iter().chain([5; 16]).collect();
    for (reply, closes, expected) in [
        (good.clone(), false, Some(vec![0x0505_0505_0505_0505; 2])),
        (vec![0xff; 4], false, None),
        (vec![1, 0, 0, 0, 9, 9], false, None),
        (vec![3, 0, 0, 0], false, None),
        (vec![0xfe; 4], false, None),
        (good[..19].to_vec(), true, None),
        (Vec::new(), true, None),
        // More than was asked for stays where it is.
        (good.repeat(10_000), false, Some(vec![0x0505_0505_0505_0505; 2])),
    ] {
        let (mut fabric, peer) = answered_by(reply, closes);
        fabric.read(0, &range, 7);
        assert_eq!(ended(&mut fabric), expected);
        drop(peer.join().unwrap());
    }
}

#[test]
fn reads_that_are_impossible_or_of_a_lost_peer_end() {
    let (mut fabric, peer) = answered_by(Vec::new(), false);
    let of = |words| Range { start: 0, words };
    for (peer, ranges) in [
        (1, &[of(1)][..]),
        (0, &[of(WORDS_MAX + 1)]),
        (0, &[of(usize::MAX), of(usize::MAX)]),
        (0, &[of(1); RANGES_MAX + 1]),
    ] {
        fabric.read(peer, ranges, 7);
        assert_eq!(ended(&mut fabric), None);
    }
    fabric.read(0, &[RemoteSketch::HEADER], 7);
    let silent = peer.join().unwrap();
    fabric.poll(|_| panic!("nobody has answered"));
    fabric.lose(0);
    assert_eq!(ended(&mut fabric), None);
    fabric.read(0, &[of(1)], 7);
    assert_eq!(ended(&mut fabric), None);
    drop(silent);
}
