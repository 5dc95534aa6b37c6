//! From which hosts manifests may be downloaded. The operator can reach what the author of a
//! resource can't, such as the metadata service of a cloud (server-side request forgery), so hosts
//! need a public address or an administrator's permission.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use ipnet::IpNet;
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Environment variables with the proxies of downloads.
const PROXIES: [&str; 4] = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];

/// A host or network that manifests may be downloaded from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedHost {
    /// A host, by its name.
    Name(String),
    /// All hosts of a network, by their addresses.
    Network(IpNet),
}

/// A text is no [`AllowedHost`].
#[derive(Debug, thiserror::Error)]
#[error("is not a host name, address or network, such as mirror.example.com or 10.0.0.0/8")]
pub struct InvalidHost;

impl FromStr for AllowedHost {
    type Err = InvalidHost;

    fn from_str(text: &str) -> Result<Self, InvalidHost> {
        if let Ok(network) = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)) {
            return Ok(Self::Network(network));
        }
        let is_name = !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c));
        if is_name { Ok(Self::Name(text.to_ascii_lowercase())) } else { Err(InvalidHost) }
    }
}

/// Why a host may not be contacted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForbiddenHost {
    /// Its address is not public.
    #[error(
        "{0} is not a public address; if the host may be contacted, add it to --allowed-manifest-hosts (chart value knative_operator.manifests.allowedHosts)"
    )]
    Address(IpAddr),
    /// It is the host of a proxy.
    #[error(
        "{0} is the host of the proxy; if manifests may be downloaded from it, add its name to --allowed-manifest-hosts (chart value knative_operator.manifests.allowedHosts)"
    )]
    Proxy(String),
}

/// Which hosts may be contacted. Clones share the lists.
#[derive(Clone, Debug, Default)]
pub struct HostPolicy(Option<Arc<Limits>>);

#[derive(Debug)]
struct Limits {
    allowed: Vec<AllowedHost>,
    /// Hosts of proxies. An administrator chose them, so connections to them are always permitted.
    /// A URL must not name them, since it is not known why a name is resolved: with `NO_PROXY`, the
    /// connection might be one to the host itself, at any port.
    proxies: Vec<String>,
}

impl HostPolicy {
    /// All hosts.
    pub fn any() -> Self {
        Self(None)
    }

    /// Hosts with public addresses, and `allowed`; for connections, also the proxies that the
    /// environment names.
    pub fn public_and(allowed: &[AllowedHost]) -> Self {
        Self::with_proxies(allowed, PROXIES.iter().filter_map(|variable| std::env::var(variable).ok()))
    }

    fn with_proxies(allowed: &[AllowedHost], proxies: impl Iterator<Item = String>) -> Self {
        let proxies = proxies.filter_map(|proxy| proxy_host(&proxy)).collect();
        Self(Some(Arc::new(Limits { allowed: allowed.to_vec(), proxies })))
    }

    /// Checks `url` itself: whether its host is a forbidden address or a proxy. The addresses of
    /// other names are checked when they are resolved.
    pub fn check(&self, url: &Url) -> Result<(), ForbiddenHost> {
        let Some(limits) = &self.0 else { return Ok(()) };
        let host = url.host_str().unwrap_or_default();
        let literal = host.trim_start_matches('[').trim_end_matches(']');
        if let Ok(address) = literal.parse::<IpAddr>() {
            return limits.check_address(literal, address);
        }
        let name = host.trim_end_matches('.');
        if limits.is_proxy(name) && !limits.allowed.iter().any(|host| host.is_name(name)) {
            return Err(ForbiddenHost::Proxy(name.to_owned()));
        }
        Ok(())
    }
}

impl AllowedHost {
    fn is_name(&self, name: &str) -> bool {
        matches!(self, Self::Name(allowed) if allowed.eq_ignore_ascii_case(name))
    }
}

impl Limits {
    fn check_address(&self, name: &str, address: IpAddr) -> Result<(), ForbiddenHost> {
        let address = address.to_canonical();
        let is_allowed = |host: &AllowedHost| match host {
            AllowedHost::Name(_) => host.is_name(name),
            AllowedHost::Network(network) => network.contains(&address),
        };
        if is_public(address) || self.allowed.iter().any(is_allowed) {
            Ok(())
        } else {
            Err(ForbiddenHost::Address(address))
        }
    }

    fn is_proxy(&self, name: &str) -> bool {
        self.proxies.iter().any(|proxy| proxy.eq_ignore_ascii_case(name))
    }
}

/// Resolves names with the system's resolver, and forbids addresses. What is connected to is what
/// was checked, so a name that changes its address gains nothing.
impl Resolve for HostPolicy {
    fn resolve(&self, name: Name) -> Resolving {
        let policy = self.clone();
        Box::pin(async move {
            let name = name.as_str().trim_end_matches('.');
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name, 0)).await?.collect();
            if let Some(limits) = policy.0.as_ref().filter(|limits| !limits.is_proxy(name)) {
                for address in &found {
                    limits.check_address(name, address.ip())?;
                }
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// The name of the host in `proxy`, the value of a variable.
fn proxy_host(proxy: &str) -> Option<String> {
    let url: Result<Url, _> = if proxy.contains("://") { proxy.parse() } else { format!("http://{proxy}").parse() };
    let host = url.ok()?.host_str()?.trim_end_matches('.').to_owned();
    Some(host).filter(|host| !host.is_empty())
}

/// Whether `address` is a unicast address of the public internet (RFC 6890, and IANA's registries
/// of special-purpose addresses).
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_special = address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        || matches!((a, b, c), (0 | 224.., ..) | (100, 64..=127, _) | (192, 0, 0) | (198, 18..=19, _));
    !is_special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    match address.segments() {
        // Addresses that contain an IPv4 address: NAT64 (RFC 6052) and 6to4.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
            is_public_v4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
        }
        // Special purposes, and documentation.
        [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => false,
        // Global unicast.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(allowed: &[&str]) -> HostPolicy {
        HostPolicy::public_and(&allowed.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>())
    }

    fn is_allowed(policy: &HostPolicy, url: &str) -> bool {
        policy.check(&url.parse().unwrap()).is_ok()
    }

    #[test]
    fn addresses_must_be_public_or_allowed() {
        for (host, public) in [
            ("140.82.121.4", true),
            ("8.8.8.8", true),
            ("[2606:50c0:8000::153]", true),
            ("example.com", true),
            ("127.0.0.1", false),
            ("2130706433", false),
            ("0x7f.1", false),
            ("0.0.0.0", false),
            ("10.1.2.3", false),
            ("172.16.0.1", false),
            ("192.168.1.1", false),
            ("169.254.169.254", false),
            ("100.100.100.200", false),
            ("192.0.0.192", false),
            ("198.18.0.1", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("[::1]", false),
            ("[::]", false),
            ("[::ffff:169.254.169.254]", false),
            ("[::127.0.0.1]", false),
            ("[64:ff9b::a9fe:a9fe]", false),
            ("[64:ff9b::808:808]", true),
            ("[2002:7f00:1::]", false),
            ("[2001::1]", false),
            ("[fd00:ec2::254]", false),
            ("[fe80::1]", false),
            ("[ff02::1]", false),
        ] {
            assert_eq!(is_allowed(&policy(&[]), &format!("https://{host}/a.yaml")), public, "{host}");
        }
        let some = policy(&["10.0.0.0/8", "192.168.7.9", "mirror.example.com", "fd00::/8"]);
        for (host, allowed) in [
            ("10.9.8.7", true),
            ("192.168.7.9", true),
            ("192.168.7.8", false),
            ("[fd12::1]", true),
            ("[::ffff:10.0.0.1]", true),
        ] {
            assert_eq!(is_allowed(&some, &format!("https://{host}/")), allowed, "{host}");
        }
        assert!(is_allowed(&HostPolicy::any(), "https://127.0.0.1/"));
        for wrong in ["", "a b", "https://x", "10.0.0.0/40"] {
            assert!(wrong.parse::<AllowedHost>().is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn proxy_is_no_host_of_manifests() {
        let with_proxy = |allowed: &[&str], proxy: &str| {
            let allowed: Vec<AllowedHost> = allowed.iter().map(|text| text.parse().unwrap()).collect();
            HostPolicy::with_proxies(&allowed, std::iter::once(proxy.to_owned()))
        };
        for proxy in ["http://u:p@LocalHost:3128/", "localhost:3128", "socks5h://localhost", "https://localhost.:1"] {
            let policy = with_proxy(&[], proxy);
            // The proxy itself can be reached, also at an address that is not public.
            assert!(policy.resolve("localhost".parse().unwrap()).await.is_ok(), "{proxy}");
            for url in ["https://localhost/", "https://localhost:3128/a", "https://LOCALHOST./a"] {
                let error = policy.check(&url.parse().unwrap()).unwrap_err();
                assert_eq!(error, ForbiddenHost::Proxy("localhost".to_owned()), "{proxy}: {url}");
            }
            assert!(is_allowed(&policy, "https://example.com/") && !is_allowed(&policy, "https://127.0.0.1/"));
        }
        assert!(is_allowed(&with_proxy(&["localhost"], "http://localhost:3128"), "https://localhost/"));
        let other = with_proxy(&[], "http://proxy.example:3128");
        assert!(is_allowed(&other, "https://localhost/") && other.resolve("localhost".parse().unwrap()).await.is_err());
        assert!(is_allowed(&with_proxy(&[], ""), "https://example.com/"));
    }

    #[tokio::test]
    async fn names_are_checked_when_they_are_resolved() {
        let resolve =
            async |policy: HostPolicy| policy.resolve("localhost".parse().unwrap()).await.map(Iterator::count);
        let error = resolve(policy(&[])).await.unwrap_err().to_string();
        assert!(error.contains("is not a public address") && error.contains("allowedHosts"), "{error}");
        assert!(resolve(policy(&["localhost"])).await.unwrap() > 0);
        assert!(resolve(policy(&["127.0.0.0/8", "::1"])).await.unwrap() > 0);
        assert!(resolve(HostPolicy::any()).await.unwrap() > 0);
    }
}
