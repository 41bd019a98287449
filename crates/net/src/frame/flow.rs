//! Headers that are known from a datagram before: header prediction, as of TCP in Jacobson's "4BSD header prediction" (1990).

use std::ops::Range;

use super::{ETHERNET_BYTES, IPV4_BYTES, TYPE_IPV4, UDP_BYTES, array, fold, is_sound, sum};

/// Bytes of all headers over IPv4.
const HEAD_BYTES: usize = ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES;
/// The source's address, at which UDP's checksum begins.
const ADDRESSES_AT: usize = ETHERNET_BYTES + 12;
const UDP_AT: usize = ETHERNET_BYTES + IPV4_BYTES;
/// IP's length, number and checksum, which differ between datagrams of a flow as UDP's length does.
const IP_BYTES_AT: usize = ETHERNET_BYTES + 2;
const IP_NUMBER_AT: usize = ETHERNET_BYTES + 4;
const IP_CHECKSUM_AT: usize = ETHERNET_BYTES + 10;
const UDP_BYTES_AT: usize = UDP_AT + 4;
/// Words before UDP's checksum.
const WORDS: usize = 5;
const _: () = assert!(8 * WORDS == HEAD_BYTES - 2);

/// The bits of the words that are the same in all datagrams of a flow.
const SAME: [u64; WORDS] = {
    let (mut words, mut word) = ([0; WORDS], 0);
    while word < WORDS {
        let (mut bytes, mut at) = ([0xff; 8], 0);
        while at < 8 {
            if let IP_BYTES_AT | IP_NUMBER_AT | IP_CHECKSUM_AT | UDP_BYTES_AT = (8 * word + at) & !1 {
                bytes[at] = 0;
            }
            at += 1;
        }
        words[word] = u64::from_ne_bytes(bytes);
        word += 1;
    }
    words
};

/// The headers of datagrams from one end to another over IPv4. In what is not theirs they are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    same: [u64; WORDS],
    /// The sum of IP's header without what differs.
    ip_sum: u64,
}

impl Flow {
    /// That of a frame which [`parse`](super::parse) has read; `None` if that was not over IPv4.
    pub fn of(frame: &[u8]) -> Option<Self> {
        let head = frame.first_chunk::<HEAD_BYTES>().filter(|head| array(*head, 12) == TYPE_IPV4)?;
        let same = same(head);
        let bytes = same.map(u64::to_ne_bytes);
        Some(Self { same, ip_sum: sum(&bytes.as_flattened()[ETHERNET_BYTES..UDP_AT]) })
    }

    /// The place of the payload in a frame of this flow: `parse` would read the same ends as in the first one, and this place.
    /// `None` if it would not, or is to be asked.
    #[inline]
    pub fn payload(&self, frame: &[u8]) -> Option<Range<usize>> {
        let head = frame.first_chunk::<HEAD_BYTES>()?;
        let word = |at| u16::from_ne_bytes(array(head, at));
        let [ip_bytes, udp_bytes] = [IP_BYTES_AT, UDP_BYTES_AT].map(|at| usize::from(u16::from_be(word(at))));
        let varying = [IP_BYTES_AT, IP_NUMBER_AT, IP_CHECKSUM_AT].map(|at| u64::from(word(at)));
        let is_this =
            same(head).iter().zip(&self.same).fold(0, |bits, (word, same)| bits | (word ^ same)) == 0;
        let fits = udp_bytes >= UDP_BYTES
            && IPV4_BYTES + udp_bytes <= ip_bytes
            && ETHERNET_BYTES + ip_bytes <= frame.len();
        if !is_this || !fits || fold(self.ip_sum + varying.iter().sum::<u64>()) != 0xffff {
            return None;
        }
        let covered = frame.get(ADDRESSES_AT..UDP_AT + udp_bytes)?;
        is_sound(array(head, HEAD_BYTES - 2), covered, UDP_AT - ADDRESSES_AT)
            .then_some(HEAD_BYTES..UDP_AT + udp_bytes)
    }
}

/// What is the same in all datagrams of a flow.
#[inline(always)]
fn same(head: &[u8; HEAD_BYTES]) -> [u64; WORDS] {
    std::array::from_fn(|word| u64::from_ne_bytes(array(head, 8 * word)) & SAME[word])
}
