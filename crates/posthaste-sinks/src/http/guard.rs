//! Addresses that an endpoint may not have, unless somebody allowed it: whoever may choose the
//! address of an endpoint could otherwise make the relay ask the machines around it (SSRF).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why an address is not of the public Internet; none: it is.
pub(super) fn not_public(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => not_public_v4(address),
        IpAddr::V6(address) => not_public_v6(address),
    }
}

fn not_public_v4(address: Ipv4Addr) -> Option<&'static str> {
    match address.octets() {
        [127, ..] => Some("a loopback address"),
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => Some("a private address"),
        // The metadata of clouds is at one.
        [169, 254, ..] => Some("a link-local address"),
        [100, 64..=127, ..] => Some("an address behind a carrier's NAT"),
        [0, ..] => Some("an unspecified address"),
        [224..=239, ..] => Some("a multicast address"),
        [192, 0, 0 | 2, _] | [192, 88, 99, _] | [198, 18 | 19, ..] => Some("a reserved address"),
        [198, 51, 100, _] | [203, 0, 113, _] | [240..=255, ..] => Some("a reserved address"),
        _ => None,
    }
}

fn not_public_v6(address: Ipv6Addr) -> Option<&'static str> {
    let embedded = |high: u16, low: u16| {
        let number = u32::from(high) << 16 | u32::from(low);
        not_public_v4(Ipv4Addr::from_bits(number))
    };
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => Some("an unspecified address"),
        [0, 0, 0, 0, 0, 0, 0, 1] => Some("a loopback address"),
        // An IPv4 address: mapped, or behind the NAT of the well-known prefix.
        [0, 0, 0, 0, 0, 0xffff, high, low] => embedded(high, low),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => embedded(high, low),
        [0xfc00..=0xfdff, ..] => Some("a private address"),
        [0xfe80..=0xfebf, ..] => Some("a link-local address"),
        [0xff00..=0xffff, ..] => Some("a multicast address"),
        // Protocols of the IETF (Teredo among them), documents, and 6to4, which holds an IPv4 one.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] => Some("a reserved address"),
        [0x2002, ..] | [0x3fff, 0..=0xfff, ..] => Some("a reserved address"),
        [0x2000..=0x3fff, ..] => None,
        _ => Some("a reserved address"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_pass() {
        for (address, expected) in [
            ("1.1.1.1", None),
            ("9.255.255.255", None),
            ("100.63.255.255", None),
            ("100.128.0.0", None),
            ("172.15.255.255", None),
            ("172.32.0.0", None),
            ("192.167.255.255", None),
            ("223.255.255.255", None),
            ("0.0.0.0", Some("unspecified")),
            ("0.1.2.3", Some("unspecified")),
            ("10.0.0.1", Some("private")),
            ("100.64.0.1", Some("carrier")),
            ("127.0.0.1", Some("loopback")),
            ("127.255.255.254", Some("loopback")),
            ("169.254.169.254", Some("link-local")),
            ("172.16.0.1", Some("private")),
            ("172.31.255.255", Some("private")),
            ("192.0.0.8", Some("reserved")),
            ("192.0.2.1", Some("reserved")),
            ("192.168.1.1", Some("private")),
            ("198.18.0.1", Some("reserved")),
            ("198.51.100.1", Some("reserved")),
            ("203.0.113.1", Some("reserved")),
            ("224.0.0.1", Some("multicast")),
            ("240.0.0.1", Some("reserved")),
            ("255.255.255.255", Some("reserved")),
            ("2606:4700:4700::1111", None),
            ("2001:4860:4860::8888", None),
            ("64:ff9b::1.1.1.1", None),
            ("::ffff:1.1.1.1", None),
            ("::", Some("unspecified")),
            ("::1", Some("loopback")),
            ("::7f00:1", Some("reserved")),
            ("::ffff:127.0.0.1", Some("loopback")),
            ("::ffff:169.254.169.254", Some("link-local")),
            ("64:ff9b::10.0.0.1", Some("private")),
            ("64:ff9b:1::1", Some("reserved")),
            ("100::1", Some("reserved")),
            ("2001::1", Some("reserved")),
            ("2001:db8::1", Some("reserved")),
            ("2002:7f00:1::", Some("reserved")),
            ("3fff::1", Some("reserved")),
            ("4000::1", Some("reserved")),
            ("fc00::1", Some("private")),
            ("fd00:ec2::254", Some("private")),
            ("fe80::1", Some("link-local")),
            ("fec0::1", Some("reserved")),
            ("ff02::1", Some("multicast")),
        ] {
            let found = not_public(address.parse().unwrap());
            match expected {
                None => assert_eq!(found, None, "{address}"),
                Some(word) => assert!(found.unwrap().contains(word), "{address}: {found:?}"),
            }
        }
    }
}
