//! Parses the addresses of an API server and its proxy from a ClusterProfile. Pure.

use http::Uri;
use percent_encoding::percent_decode_str;
use secrecy::{ExposeSecret, SecretString};

/// Maximum length of a URL in a message, in characters.
const MAX_DISPLAYED: usize = 200;

/// A proxy.
#[derive(Clone, Debug, PartialEq)]
pub struct Proxy {
    /// Protocol with which the proxy is spoken to.
    pub scheme: Scheme,
    /// Its URL, without user information.
    pub url: Uri,
    /// User and password, if it asks for them.
    pub login: Option<Login>,
}

/// Protocol of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// CONNECT over plain HTTP/1.1.
    Http,
    /// CONNECT over HTTP/1.1 within TLS.
    Https,
    /// SOCKS5 (RFC 1928), names resolved by the proxy.
    Socks5,
}

/// User and password.
#[derive(Clone, Debug)]
pub struct Login {
    /// The user.
    pub user: String,
    /// The password.
    pub password: SecretString,
}

impl PartialEq for Login {
    fn eq(&self, other: &Self) -> bool {
        self.user == other.user && self.password.expose_secret() == other.password.expose_secret()
    }
}

/// Why an address can't be used. The text has no login.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// It can't be parsed.
    #[error("\"{0}\" is not a URL: {1}")]
    NotUrl(String, http::uri::InvalidUri),
    /// It has a user or a password.
    #[error("\"{0}\" contains a login; put it into a Secret that an access provider reads")]
    Login(String),
    /// It has no TLS.
    #[error("\"{0}\" is not https, so the credential would be sent unencrypted; use https")]
    Unencrypted(String),
    /// It is not that of a server.
    #[error("\"{0}\" is not a URL such as https://host:6443")]
    NotServer(String),
    /// It is not that of a proxy.
    #[error("\"{0}\" is not a URL such as http://host:3128, https://host:3129 or socks5://host:1080")]
    NotProxy(String),
    /// It has no place for a port.
    #[error(transparent)]
    Port(#[from] http::Error),
}

/// Parses the URL of an API server. `allows_http`: also of one without TLS, to which credentials
/// are sent unencrypted.
pub fn server(url: &str, allows_http: bool) -> Result<Uri, AddressError> {
    let shown = without_login(url);
    let uri: Uri = url.parse().map_err(|error| AddressError::NotUrl(shown.clone(), error))?;
    match uri.scheme_str() {
        Some("https" | "http") if shown != url => Err(AddressError::Login(shown)),
        Some("https") if uri.host().is_some_and(|host| !host.is_empty()) => Ok(uri),
        Some("http") if !allows_http => Err(AddressError::Unencrypted(shown)),
        Some("http") if uri.host().is_some_and(|host| !host.is_empty()) => Ok(with_port(uri)?),
        _ => Err(AddressError::NotServer(shown)),
    }
}

/// Whether two URLs of [`server`] are those of the same one.
pub fn is_same(one: &Uri, other: &Uri) -> bool {
    // One of http has its port.
    let port = |uri: &Uri| uri.port_u16().unwrap_or(443);
    let hosts = one.host().zip(other.host());
    hosts.is_some_and(|(one, other)| one.eq_ignore_ascii_case(other))
        && (one.scheme(), port(one)) == (other.scheme(), port(other))
        && one.path().trim_end_matches('/') == other.path().trim_end_matches('/')
}

/// `server` as a word of a command; `URL` in place of one that a shell could take for something
/// else, or the program for several: the author of a ClusterProfile chooses it.
pub fn word(server: &Uri) -> String {
    let text = server.to_string();
    let is_plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:/%[]".contains(&b));
    if is_plain { text } else { "URL".to_owned() }
}

/// `uri`, of http, with a port: proxies would connect to that of https.
fn with_port(uri: Uri) -> http::Result<Uri> {
    let mut parts = uri.into_parts();
    let authority = parts.authority.take().map(|authority| {
        let has_port = authority.port().is_some();
        if has_port { Ok(authority) } else { format!("{authority}:80").parse() }
    });
    parts.authority = authority.transpose()?;
    Ok(Uri::from_parts(parts)?)
}

/// Parses the URL of a proxy.
pub fn proxy(url: &str) -> Result<Proxy, AddressError> {
    let invalid = || AddressError::NotProxy(without_login(url));
    let (scheme, rest) = url.split_once("://").ok_or_else(invalid)?;
    let (scheme, port) = match scheme.to_ascii_lowercase().as_str() {
        "http" => (Scheme::Http, 80),
        "https" => (Scheme::Https, 443),
        "socks5" | "socks5h" => (Scheme::Socks5, 1080),
        _ => return Err(invalid()),
    };
    let rest = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let (login, host) = match rest.rsplit_once('@') {
        Some((login, host)) => (Some(login), host),
        None => (None, rest),
    };
    let authority: http::uri::Authority = host.parse().map_err(|_| invalid())?;
    if authority.host().is_empty() {
        return Err(invalid());
    }
    let host = if authority.port().is_some() { host.to_owned() } else { format!("{host}:{port}") };
    let name = if scheme == Scheme::Https { "https" } else { "http" };
    let url = Uri::builder().scheme(name).authority(host).path_and_query("/").build().map_err(|_| invalid())?;
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let login = login.map(|login| {
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        Login { user: decoded(user), password: decoded(password).into() }
    });
    Ok(Proxy { scheme, url, login })
}

/// `url` without user information, and shortened, for messages.
fn without_login(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let shown = match rest[..end].rfind('@') {
        Some(at) if scheme.is_empty() => rest[at + 1..].to_owned(),
        Some(at) => format!("{scheme}://{}", &rest[at + 1..]),
        None => url.to_owned(),
    };
    shown.chars().take(MAX_DISPLAYED).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn displayed_url_has_no_login_and_server_needs_https() {
        assert!(server("https://h:6443/path", false).is_ok());
        for (url, part) in [
            ("http://h:8080", "is not https"),
            ("https://u:geheim@h", "\"https://h\" contains a login"),
            ("u:geheim@h", "\"h\" is not a URL"),
            ("https://", "is not a URL"),
            ("ftp://h", "is not a URL such as"),
        ] {
            let why = server(url, false).unwrap_err().to_string();
            assert!(why.contains(part) && !why.contains("geheim"), "{url}: {why}");
        }
        for (url, expected) in [
            ("http://h:8080/a", "http://h:8080/a"),
            ("http://h/a", "http://h:80/a"),
            ("http://[::1]", "http://[::1]:80/"),
        ] {
            assert_eq!(server(url, true).unwrap().to_string(), expected);
        }
        for (url, part) in [("http://u:geheim@h", "contains a login"), ("ftp://h", "is not a URL such as")] {
            let why = server(url, true).unwrap_err().to_string();
            assert!(why.contains(part) && !why.contains("geheim"), "{url}: {why}");
        }
        assert!(without_login(&"x".repeat(5000)).len() < 300);
    }

    #[test]
    fn server_runs_nothing_in_a_shell() {
        for plain in ["https://h-1.example:6443/k8s/c_1%20", "https://[::1]:6443/"] {
            assert_eq!(word(&plain.parse().unwrap()), plain);
        }
        for hostile in ["$(id)", ";id", "|id", "&id", "'id", "\"id", "{a,b}", ",https://b", "?`id`", "?a=*", "~"] {
            let server = server(&format!("https://h/{hostile}"), false).unwrap();
            assert_eq!(word(&server), "URL", "{hostile}");
        }
    }

    #[test]
    fn proxy_has_login_and_default_port() {
        let read = |url: &str| {
            proxy(url).map(|p| {
                (p.scheme, p.url.to_string(), p.login.map(|l| (l.user, l.password.expose_secret().to_owned())))
            })
        };
        assert_eq!(read("http://h:3128").unwrap(), (Scheme::Http, "http://h:3128/".to_owned(), None));
        let login = Some(("u@x".to_owned(), "p:q".to_owned()));
        assert_eq!(read("https://u%40x:p%3Aq@h/").unwrap(), (Scheme::Https, "https://h:443/".to_owned(), login));
        assert_eq!(read("socks5://[::1]").unwrap(), (Scheme::Socks5, "http://[::1]:1080/".to_owned(), None));
        for invalid in ["h:3128", "ftp://h", "http://", "http://u:geheim@"] {
            let why = read(invalid).unwrap_err().to_string();
            assert!(why.contains("is not a URL such as") && !why.contains("geheim"), "{why}");
        }
    }
}
