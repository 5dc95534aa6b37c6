//! Who may talk to the server: the browser that presented the token, and nobody else. Guards
//! against other users of the machine, other web sites, and DNS rebinding.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use sha2::{Digest, Sha256};

/// Length of the token and of the cookie, in bytes.
const LENGTH: usize = 32;
/// What the page may load: its own files only.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// Headers of each response.
const HEADERS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];
/// Text for browsers without the cookie.
const NO_SESSION: &str = "This URL was used already, or its token is missing. Run `knative-operator ui` again, and open the URL that it prints.\n";

/// Checks requests.
pub struct Guard {
    hosts: [String; 2],
    cookie_name: String,
    /// Hash of the token: comparing hashes takes the same time for all wrong tokens.
    token: [u8; 32],
    cookie: String,
    is_used: AtomicBool,
}

impl Guard {
    /// A guard for the server on `port`, and its token.
    ///
    /// # Errors
    ///
    /// If the system has no random numbers.
    pub fn new(port: u16) -> Result<(Self, String), String> {
        let (token, cookie) = (random()?, random()?);
        let guard = Self {
            hosts: [format!("127.0.0.1:{port}"), format!("localhost:{port}")],
            // Cookies don't depend on the port.
            cookie_name: format!("knative-operator-{port}"),
            token: hash(&token),
            cookie,
            is_used: AtomicBool::new(false),
        };
        Ok((guard, token))
    }

    /// Middleware.
    pub async fn check(State(guard): State<Arc<Self>>, request: Request, next: Next) -> Response {
        let mut response = match guard.decide(&request) {
            Decision::Serve => next.run(request).await,
            Decision::SetCookie => {
                let cookie = format!("{}={}; HttpOnly; SameSite=Strict; Path=/", guard.cookie_name, guard.cookie);
                ([(header::SET_COOKIE, cookie)], Redirect::to("/")).into_response()
            }
            Decision::Refuse(code, why) => (code, why).into_response(),
        };
        let headers = HEADERS.map(|(name, value)| (name, HeaderValue::from_static(value)));
        response.headers_mut().extend(headers);
        response
    }

    fn decide(&self, request: &Request) -> Decision {
        let headers = request.headers();
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            return Decision::Refuse(StatusCode::METHOD_NOT_ALLOWED, "The page is read-only.\n");
        }
        let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        if !text(&header::HOST).is_some_and(|host| self.hosts.iter().any(|own| own == host)) {
            return Decision::Refuse(StatusCode::MISDIRECTED_REQUEST, "Use http://127.0.0.1 and the port.\n");
        }
        let is_own =
            |origin: &str| origin.strip_prefix("http://").is_some_and(|host| self.hosts.iter().any(|h| h == host));
        let fetched_by = text(&HeaderName::from_static("sec-fetch-site")).unwrap_or("none");
        let is_foreign = text(&header::ORIGIN).is_some_and(|origin| !is_own(origin));
        let token = request.uri().query().and_then(|query| query.strip_prefix("token="));
        // A link from another program opens the page with its token.
        let is_navigation = token.is_some() && request.uri().path() == "/";
        if is_foreign || !(["same-origin", "none"].contains(&fetched_by) || is_navigation) {
            return Decision::Refuse(StatusCode::FORBIDDEN, "Requests of other sites are refused.\n");
        }
        if token.is_some_and(|token| hash(token) == self.token) && !self.is_used.swap(true, Ordering::SeqCst) {
            return Decision::SetCookie;
        }
        if self.has_cookie(headers) { Decision::Serve } else { Decision::Refuse(StatusCode::FORBIDDEN, NO_SESSION) }
    }

    fn has_cookie(&self, headers: &HeaderMap) -> bool {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.any(|(name, value)| name == self.cookie_name && hash(value) == hash(&self.cookie))
    }
}

#[derive(Debug, PartialEq)]
enum Decision {
    Serve,
    SetCookie,
    Refuse(StatusCode, &'static str),
}

fn hash(text: &str) -> [u8; 32] {
    Sha256::digest(text).into()
}

/// A random text, in hexadecimal digits.
fn random() -> Result<String, String> {
    let mut bytes = [0; LENGTH];
    let random = rustls::crypto::ring::default_provider().secure_random;
    random.fill(&mut bytes).map_err(|_| "the system has no random numbers".to_owned())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn decide(guard: &Guard, path: &str, headers: &[(&str, &str)]) -> Decision {
        let mut request = axum::http::Request::builder().uri(path);
        let host = [("host", "127.0.0.1:7000")];
        let has_host = headers.iter().any(|(name, _)| *name == "host");
        for (name, value) in headers.iter().chain(host.iter().filter(|_| !has_host)) {
            request = request.header(*name, *value);
        }
        guard.decide(&request.body(Body::empty()).unwrap())
    }

    #[test]
    fn token_is_valid_once() {
        let (guard, token) = Guard::new(7000).unwrap();
        let url = format!("/?token={token}");
        let forbidden = Decision::Refuse(StatusCode::FORBIDDEN, NO_SESSION);
        assert_eq!(decide(&guard, "/", &[]), forbidden);
        assert_eq!(decide(&guard, "/?token=wrong", &[]), forbidden);
        assert_eq!(decide(&guard, &url, &[("sec-fetch-site", "cross-site")]), Decision::SetCookie);
        assert_eq!(decide(&guard, &url, &[]), forbidden);
        let cookie = format!("a=b; knative-operator-7000={}", guard.cookie);
        assert_eq!(decide(&guard, "/api/events", &[("cookie", &cookie)]), Decision::Serve);
    }

    #[test]
    fn other_hosts_sites_and_methods_are_refused() {
        let (guard, _) = Guard::new(7000).unwrap();
        let cookie = format!("knative-operator-7000={}", guard.cookie);
        for (header, code) in [
            (("host", "evil.example:7000"), StatusCode::MISDIRECTED_REQUEST),
            (("host", "127.0.0.1:7001"), StatusCode::MISDIRECTED_REQUEST),
            (("origin", "http://evil.example"), StatusCode::FORBIDDEN),
            (("origin", "https://127.0.0.1:7000"), StatusCode::FORBIDDEN),
            (("origin", "null"), StatusCode::FORBIDDEN),
            (("sec-fetch-site", "same-site"), StatusCode::FORBIDDEN),
        ] {
            let refused = decide(&guard, "/api/events", &[("cookie", &cookie), header]);
            assert!(matches!(refused, Decision::Refuse(actual, _) if actual == code), "{header:?}: {refused:?}");
        }
        for host in ["127.0.0.1:7000", "localhost:7000"] {
            let origin = format!("http://{host}");
            let headers =
                [("cookie", cookie.as_str()), ("host", host), ("origin", &origin), ("sec-fetch-site", "same-origin")];
            assert_eq!(decide(&guard, "/", &headers), Decision::Serve);
        }
        let post = axum::http::Request::post("/").header("host", "127.0.0.1:7000").header("cookie", &cookie);
        let refused = guard.decide(&post.body(Body::empty()).unwrap());
        assert!(matches!(refused, Decision::Refuse(StatusCode::METHOD_NOT_ALLOWED, _)));
    }
}
