//! Addresses as the kernel writes them.

use std::{
    mem::{offset_of, size_of},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6},
};

/// A socket address of either family, in the kernel's form. Its first field gives the family.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) union Name {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

/// The kernel compares nothing but the family at this place, in both forms.
const _: () = assert!(
    offset_of!(libc::sockaddr_in, sin_family) == offset_of!(libc::sockaddr_in6, sin6_family)
        && size_of::<Name>() == size_of::<libc::sockaddr_in6>()
);

impl Name {
    /// No address: the kernel has not written one yet.
    pub(super) const EMPTY: Self = {
        // SAFETY: zeros are a value of both forms, and the larger one covers the union.
        let v6 = unsafe { std::mem::zeroed::<libc::sockaddr_in6>() };
        Self { v6 }
    };

    /// How many bytes of it count.
    pub(super) fn bytes(&self) -> libc::socklen_t {
        let bytes = match self.family() {
            libc::AF_INET => size_of::<libc::sockaddr_in>(),
            _ => size_of::<libc::sockaddr_in6>(),
        };
        bytes as libc::socklen_t
    }

    /// The address, unless it is of a family that is not spoken here.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        match self.family() {
            libc::AF_INET => {
                // SAFETY: all fields are integers, and every part of the union was initialized.
                let v4 = unsafe { self.v4 };
                let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
            }
            libc::AF_INET6 => {
                // SAFETY: as above.
                let v6 = unsafe { self.v6 };
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                let port = u16::from_be(v6.sin6_port);
                Some(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
            }
            _ => None,
        }
    }

    fn family(&self) -> libc::c_int {
        // SAFETY: the family stands at the same place in both forms and is always initialized.
        unsafe { self.v4.sin_family }.into()
    }
}

impl From<SocketAddr> for Name {
    fn from(address: SocketAddr) -> Self {
        // The larger form is cleared first, so that every byte is initialized whichever is written.
        let mut name = Self::EMPTY;
        match address {
            SocketAddr::V4(address) => {
                name.v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: address.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                    sin_zero: [0; 8],
                };
            }
            SocketAddr::V6(address) => {
                name.v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: address.port().to_be(),
                    sin6_flowinfo: address.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                    sin6_scope_id: address.scope_id(),
                };
            }
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_come_back_as_they_went() {
        for text in ["127.0.0.1:11211", "255.1.2.3:65535", "[::1]:1", "[fe80::1%3]:5", "[2001:db8::7]:80"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(Name::from(address).address(), Some(address));
        }
    }

    #[test]
    fn an_empty_name_is_no_address() {
        assert_eq!(Name::EMPTY.address(), None);
    }
}
