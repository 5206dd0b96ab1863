//! Through which proxy, if any: the rules of Go's `net/http`, which kubectl follows.

use std::net::IpAddr;

use http::{
    Uri,
    uri::{Authority, Scheme},
};
use ipnet::IpNet;

use super::{ConnectError, Env};

/// `proxy-url` of a cluster; it holds for every host, even the loopback.
pub(super) fn of_cluster(text: &str) -> Result<Uri, String> {
    let uri: Uri = text.parse().map_err(|e| format!("could not parse: {e}"))?;
    match uri.scheme_str() {
        Some("http" | "https" | "socks5") if uri.host().is_some() => Ok(with_port(uri)),
        Some("http" | "https" | "socks5") => Err("no host".to_owned()),
        scheme => Err(format!("unsupported scheme {:?}, must be http, https, or socks5", scheme.unwrap_or_default())),
    }
}

/// The proxy the environment wants for this server.
pub(super) fn of_environment(server: &Uri, env: &Env) -> Result<Option<Uri>, ConnectError> {
    let names: &[&str] = match server.scheme_str() {
        Some("https") => &["HTTPS_PROXY", "https_proxy"],
        _ => &["HTTP_PROXY", "http_proxy"],
    };
    match env.first_var(names) {
        Some(text) if !bypasses(server, env) => parse(text).map(Some),
        _ => Ok(None),
    }
}

/// A value without a scheme means HTTP.
fn parse(text: &str) -> Result<Uri, ConnectError> {
    let full = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let refused = || ConnectError::Refused(format!("invalid proxy address {text:?}: use http://host:port"));
    let uri: Uri = full.parse().map_err(|_| refused())?;
    match uri.scheme_str() {
        Some("http" | "https" | "socks5" | "socks5h") if uri.host().is_some() => Ok(with_port(uri)),
        _ => Err(refused()),
    }
}

/// SOCKS has a port of its own, which the connector does not know.
fn with_port(uri: Uri) -> Uri {
    let socks = uri.scheme_str().is_some_and(|s| s.starts_with("socks5"));
    let Some(authority) = uri.authority().filter(|a| socks && a.port().is_none()) else { return uri };
    let Ok(authority) = Authority::try_from(format!("{authority}:1080")) else { return uri };
    let mut parts = uri.into_parts();
    parts.authority = Some(authority);
    Uri::from_parts(parts).unwrap_or_default()
}

fn bypasses(server: &Uri, env: &Env) -> bool {
    let destination = Destination::of(server);
    let list = env.first_var(&["NO_PROXY", "no_proxy"]).unwrap_or_default();
    destination.is_loopback() || list.split(',').any(|entry| destination.matches(&entry.trim().to_ascii_lowercase()))
}

struct Destination {
    host: String,
    ip: Option<IpAddr>,
    port: u16,
}

impl Destination {
    fn of(server: &Uri) -> Self {
        let host = server.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        let default = if server.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 };
        Self { ip: host.parse().ok(), host, port: server.port_u16().unwrap_or(default) }
    }

    fn is_loopback(&self) -> bool {
        self.host == "localhost" || self.ip.is_some_and(|ip| ip.to_canonical().is_loopback())
    }

    fn matches(&self, entry: &str) -> bool {
        match entry.parse::<IpNet>() {
            _ if entry == "*" => true,
            Ok(net) => self.ip.is_some_and(|ip| net.contains(&ip.to_canonical())),
            Err(_) => self.matches_host_and_port(entry),
        }
    }

    fn matches_host_and_port(&self, entry: &str) -> bool {
        let (host, port) = split_port(entry);
        if port.is_some_and(|p| p != self.port.to_string()) {
            return false;
        }
        match host.parse::<IpAddr>() {
            Ok(ip) => self.ip.is_some_and(|mine| mine.to_canonical() == ip.to_canonical()),
            Err(_) => self.matches_name(host),
        }
    }

    /// `a.b` matches itself and all below; `.a.b` and `*.a.b` match only what is below.
    fn matches_name(&self, pattern: &str) -> bool {
        let pattern = pattern.strip_prefix('*').filter(|p| p.starts_with('.')).unwrap_or(pattern);
        match pattern.strip_prefix('.') {
            _ if pattern.is_empty() => false,
            Some(_) => self.host.ends_with(pattern),
            None => self.host == pattern || self.host.ends_with(&format!(".{pattern}")),
        }
    }
}

/// `host`, `host:port`, `[v6]:port` or a bare IPv6 address.
fn split_port(entry: &str) -> (&str, Option<&str>) {
    if entry.parse::<IpAddr>().is_ok() {
        return (entry, None);
    }
    let (host, port) = match entry.rsplit_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (entry, None),
    };
    (host.trim_start_matches('[').trim_end_matches(']'), port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(variables: &[(&str, &str)]) -> Env {
        Env {
            variables: variables.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
            home: None,
            terminal: false,
            service_account: "/nowhere".into(),
        }
    }

    fn proxied(server: &str, no_proxy: &str) -> bool {
        let env = env(&[("HTTPS_PROXY", "http://p:1"), ("NO_PROXY", no_proxy)]);
        of_environment(&server.parse().unwrap(), &env).unwrap().is_some()
    }

    #[test]
    fn no_proxy_follows_go() {
        for (server, no_proxy, expected) in [
            ("https://a.b:6443", "", true),
            ("https://a.b:6443", "a.b", false),
            ("https://A.B:6443", "a.b", false),
            ("https://a.b:6443", "x, A.B ", false),
            ("https://x.a.b:6443", "a.b", false),
            ("https://xa.b:6443", "a.b", true),
            ("https://a.b:6443", ".a.b", true),
            ("https://x.a.b:6443", ".a.b", false),
            ("https://x.a.b:6443", "*.a.b", false),
            ("https://a.b:6443", "*.a.b", true),
            ("https://a.b:6443", "a.b:6443", false),
            ("https://a.b:6443", "a.b:443", true),
            ("https://a.b", "a.b:443", false),
            ("https://10.1.2.3:6443", "10.0.0.0/8", false),
            ("https://11.1.2.3:6443", "10.0.0.0/8", true),
            ("https://10.1.2.3:6443", "10.1.2.3", false),
            ("https://10.1.2.3:6443", "10.1.2.3:6443", false),
            ("https://10.1.2.3:6443", "10.1.2.3:1", true),
            ("https://[fd00::1]:6443", "fd00::/8", false),
            ("https://[fd00::1]:6443", "fd00::1", false),
            ("https://[fd00::1]:6443", "[fd00::1]:6443", false),
            ("https://[fd00::1]:6443", "[fd00::1]:1", true),
            ("https://a.b:6443", "*", false),
            ("https://a.b:6443", "x,*", false),
            ("https://a.b:6443", ",,:80,", true),
            ("https://localhost:6443", "", false),
            ("https://127.0.0.9:6443", "", false),
            ("https://[::1]:6443", "", false),
        ] {
            assert_eq!(proxied(server, no_proxy), expected, "{server} with NO_PROXY={no_proxy}");
        }
    }

    #[test]
    fn upper_case_wins_and_the_scheme_may_be_missing() {
        let server = "https://a.b:6443".parse().unwrap();
        let proxy =
            |variables: &[(&str, &str)]| of_environment(&server, &env(variables)).unwrap().map(|u| u.to_string());
        assert_eq!(proxy(&[("HTTP_PROXY", "http://p"), ("ALL_PROXY", "http://p")]), None);
        assert_eq!(proxy(&[("https_proxy", "p:3128")]).as_deref(), Some("http://p:3128/"));
        assert_eq!(proxy(&[("HTTPS_PROXY", "a:1"), ("https_proxy", "b:1")]).as_deref(), Some("http://a:1/"));
        assert_eq!(proxy(&[("HTTPS_PROXY", ""), ("https_proxy", "b:1")]).as_deref(), Some("http://b:1/"));
        assert_eq!(proxy(&[("HTTPS_PROXY", "socks5://s")]).as_deref(), Some("socks5://s:1080/"));
        assert_eq!(proxy(&[("HTTPS_PROXY", "u:p@p:3128")]).as_deref(), Some("http://u:p@p:3128/"));
    }

    #[test]
    fn plain_http_servers_use_the_other_variable() {
        let server = "http://a.b:8080".parse().unwrap();
        let found = of_environment(&server, &env(&[("HTTP_PROXY", "p:1"), ("HTTPS_PROXY", "q:1")]));
        assert_eq!(found.unwrap().unwrap().to_string(), "http://p:1/");
    }
}
