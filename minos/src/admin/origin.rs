//! The origin check: pages that a browser loaded elsewhere must not reach the endpoint, neither through a
//! name of theirs that resolves to this host (DNS rebinding) nor directly.

use std::net::IpAddr;

use hyper::{Request, header, http::uri::Authority};

/// The reason to refuse a request. None if it asks for an address, for localhost or for one of `names`, and
/// comes from no page or from a page of such a place.
pub(super) fn refusal<B>(request: &Request<B>, names: &[String]) -> Option<String> {
    let headers = request.headers();
    let in_headers = headers.get_all(header::HOST).iter().map(|host| host.to_str().unwrap_or_default());
    let asked: Vec<&str> =
        request.uri().authority().map(Authority::as_str).into_iter().chain(in_headers).collect();
    if let Some(host) = asked.iter().find(|host| !is_known(host, names)) {
        return Some(format!("the host {host:?} is no address and not among those of --admin-host"));
    }
    let mut origins =
        headers.get_all(header::ORIGIN).iter().map(|origin| origin.to_str().unwrap_or_default());
    let foreign = origins.find(|origin| {
        let place = origin.split_once("://").map_or("", |(_, place)| place);
        !is_named(place, names) && !asked.iter().any(|host| host.eq_ignore_ascii_case(place))
    })?;
    Some(format!("the origin {foreign:?} is not this endpoint and not among those of --admin-host"))
}

/// True if `place`, a host with or without a port, cannot be a stranger's name that resolves to this host.
fn is_known(place: &str, names: &[String]) -> bool {
    let Ok(authority) = place.parse::<Authority>() else { return false };
    let host = authority.host();
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    address.parse::<IpAddr>().is_ok() || host.eq_ignore_ascii_case("localhost") || is_named(place, names)
}

/// True if the host of `place` is one of `names`.
fn is_named(place: &str, names: &[String]) -> bool {
    let authority = place.parse::<Authority>();
    authority.is_ok_and(|authority| names.iter().any(|name| name.eq_ignore_ascii_case(authority.host())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_refused(uri: &str, fields: &[(&str, &str)]) -> bool {
        let request =
            fields.iter().fold(Request::get(uri), |request, (name, value)| request.header(*name, *value));
        refusal(&request.body(()).unwrap(), &["Proxy.example".to_owned()]).is_some()
    }

    #[test]
    fn addresses_localhost_and_what_was_named_are_served() {
        for host in
            ["127.0.0.1:11212", "10.1.2.3", "[::1]:80", "localhost", "LocalHost:1", "proxy.example:443"]
        {
            assert!(!is_refused("/stats", &[("host", host)]), "{host}");
        }
        // HTTP/1.0 has no Host field.
        assert!(!is_refused("/stats", &[]));
    }

    #[test]
    fn other_names_are_refused() {
        for host in [
            "evil.example",
            "evil.example:11212",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "",
            "::1",
            "a b",
        ] {
            assert!(is_refused("/stats", &[("host", host)]), "{host}");
        }
        assert!(is_refused("http://evil.example/stats", &[("host", "localhost")]));
        assert!(is_refused("/stats", &[("host", "localhost"), ("host", "evil.example")]));
    }

    #[test]
    fn pages_of_elsewhere_are_refused() {
        let from = |origin| [("host", "127.0.0.1:11212"), ("origin", origin)];
        for origin in ["http://evil.example", "http://127.0.0.1:8000", "http://localhost:11212", "null", ""] {
            assert!(is_refused("/dispatch", &from(origin)), "{origin}");
        }
        for origin in ["http://127.0.0.1:11212", "https://proxy.example"] {
            assert!(!is_refused("/dispatch", &from(origin)), "{origin}");
        }
    }
}
