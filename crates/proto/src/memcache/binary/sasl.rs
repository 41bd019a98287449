//! The packets by which a client says who it is: SASL with the mechanism PLAIN.

use super::{HEADER_BYTES, MAGIC, Reply, opcode, word};

/// Longest body of a login, in bytes.
const LOGIN_BYTES_MAX: usize = 2048;
const PLAIN: &[u8] = b"PLAIN";

/// A packet of a client that has not said who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting<'a> {
    /// How to answer.
    pub reply: Reply,
    /// What the client wants.
    pub wants: Wants<'a>,
    /// Bytes of the packet.
    pub consumed: usize,
}

/// What such a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants<'a> {
    /// The names of mechanisms.
    Mechanisms,
    /// To be this user.
    Login {
        /// The user's name.
        name: &'a [u8],
        /// The password.
        password: &'a [u8],
    },
    /// To log in by a mechanism that is not served, or in steps.
    OtherMechanism,
    /// The server's version.
    Version,
    /// Anything else.
    Other,
}

/// True if a packet about a login begins `input`.
pub fn begins_login(input: &[u8]) -> bool {
    let is_login = |opcode| matches!(opcode, opcode::SASL_LIST | opcode::SASL_AUTH | opcode::SASL_STEP);
    input.len() >= HEADER_BYTES && input[0] == MAGIC && is_login(input[1])
}

/// Reads the packet at the front of `input`; `None` if it is not whole, which only packets of a login have to be.
pub fn greeting(input: &[u8]) -> Option<Greeting<'_>> {
    let (header, rest) = input.split_first_chunk::<HEADER_BYTES>()?;
    let opaque = [header[12], header[13], header[14], header[15]];
    let reply = Reply { opcode: header[1], opaque, quiet: false, with_key: false };
    let key_bytes = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let (extras_bytes, body_bytes) = (usize::from(header[4]), word(header, 8) as usize);
    let has_no_body = body_bytes == 0;
    let is_login = matches!(header[1], opcode::SASL_AUTH | opcode::SASL_STEP)
        && extras_bytes == 0
        && key_bytes <= body_bytes
        && body_bytes <= LOGIN_BYTES_MAX;
    let wants = match header[1] {
        _ if header[0] != MAGIC => Wants::Other,
        opcode::SASL_LIST if has_no_body => Wants::Mechanisms,
        opcode::VERSION if has_no_body => Wants::Version,
        opcode::SASL_AUTH if is_login => {
            let (mechanism, secret) = rest.get(..body_bytes)?.split_at(key_bytes);
            if mechanism == PLAIN { plain(secret) } else { Wants::OtherMechanism }
        }
        opcode::SASL_STEP if is_login => {
            rest.get(..body_bytes)?;
            Wants::OtherMechanism
        }
        _ => Wants::Other,
    };
    let consumed = if wants == Wants::Other { 0 } else { HEADER_BYTES + body_bytes };
    Some(Greeting { reply, wants, consumed })
}

/// Reads a name and a password, which stand behind the name of whom to be, which is ignored.
fn plain(secret: &[u8]) -> Wants<'_> {
    let mut parts = secret.splitn(3, |&byte| byte == 0);
    match (parts.next(), parts.next(), parts.next()) {
        (Some(_), Some(name), Some(password)) => Wants::Login { name, password },
        _ => Wants::OtherMechanism,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(opcode: u8, key: &[u8], value: &[u8]) -> Vec<u8> {
        let mut packet = vec![MAGIC, opcode, 0, key.len() as u8, 0, 0, 0, 0];
        packet.extend(((key.len() + value.len()) as u32).to_be_bytes());
        packet.extend([1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0]);
        packet.extend_from_slice(key);
        packet.extend_from_slice(value);
        packet
    }

    #[test]
    fn logins_are_read_when_they_are_whole() {
        let login = packet(opcode::SASL_AUTH, b"PLAIN", b"me\0user\0pass\0word");
        let wants = Wants::Login { name: b"user", password: b"pass\0word" };
        for end in 0..login.len() {
            assert_eq!(greeting(&login[..end]), None);
            assert_eq!(begins_login(&login[..end]), end >= HEADER_BYTES);
        }
        let read = greeting(&login).unwrap();
        assert_eq!((read.wants, read.consumed, read.reply.opaque), (wants, login.len(), [1, 2, 3, 4]));
        let cases: [(&[u8], Wants<'_>); 6] = [
            (&packet(opcode::SASL_AUTH, b"PLAIN", b"only\0two"), Wants::OtherMechanism),
            (&packet(opcode::SASL_AUTH, b"CRAM-MD5", b""), Wants::OtherMechanism),
            (&packet(opcode::SASL_STEP, b"PLAIN", b"\0u\0p"), Wants::OtherMechanism),
            (&packet(opcode::SASL_LIST, b"", b""), Wants::Mechanisms),
            (&packet(opcode::VERSION, b"", b""), Wants::Version),
            (&packet(opcode::SASL_AUTH, b"PLAIN", &[0; 3000]), Wants::Other),
        ];
        for (bytes, wants) in cases {
            assert_eq!(greeting(bytes).unwrap().wants, wants);
        }
        // No more than the header is waited for.
        assert_eq!(greeting(&packet(opcode::SET, b"key", b"")[..HEADER_BYTES]).unwrap().wants, Wants::Other);
        let mut no_packet = packet(opcode::SASL_LIST, b"", b"");
        no_packet[0] = b'g';
        assert_eq!(greeting(&no_packet).unwrap().wants, Wants::Other);
    }
}
