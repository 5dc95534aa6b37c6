//! Who may talk to the server: the browser that presented the token, and nobody else. Guards
//! against other users of the machine, other servers on it, other web sites, and DNS rebinding.
//!
//! The browser exchanges the token for the session, which its script keeps in the storage of this
//! origin and sends in a header. A cookie would not do: browsers send it to all ports of a host.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use super::assets;

/// Length of the token and of the session, in bytes.
const LENGTH: usize = 32;
/// Where the token is exchanged for the session.
const EXCHANGE: &str = "/api/session";
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
/// Text for browsers without the session.
const NO_SESSION: &str = "This URL was used already, or its token is missing. Run `knative-operator ui` again, and open the URL that it prints.\n";

/// Checks requests.
pub struct Guard {
    hosts: [String; 2],
    /// Hash of the token: comparing hashes takes the same time for all wrong tokens.
    token: [u8; 32],
    session: String,
    is_used: AtomicBool,
    exchanged: CancellationToken,
}

impl Guard {
    /// A guard for the server on `port`, and its token.
    ///
    /// # Errors
    ///
    /// If the system has no random numbers.
    pub fn new(port: u16) -> Result<(Self, String), String> {
        let (token, session) = (random()?, random()?);
        let guard = Self {
            hosts: [format!("127.0.0.1:{port}"), format!("localhost:{port}")],
            token: hash(&token),
            session,
            is_used: AtomicBool::new(false),
            exchanged: CancellationToken::new(),
        };
        Ok((guard, token))
    }

    /// Is canceled once a browser has exchanged the token.
    pub fn exchanged(&self) -> CancellationToken {
        self.exchanged.clone()
    }

    /// Middleware.
    pub async fn check(State(guard): State<Arc<Self>>, request: Request, next: Next) -> Response {
        let mut response = match guard.decide(&request) {
            Decision::Serve => next.run(request).await,
            Decision::BeginSession => {
                guard.exchanged.cancel();
                guard.session.clone().into_response()
            }
            Decision::Refuse(code, why) => (code, why).into_response(),
        };
        let headers = HEADERS.map(|(name, value)| (name, HeaderValue::from_static(value)));
        response.headers_mut().extend(headers);
        response
    }

    fn decide(&self, request: &Request) -> Decision {
        let (headers, method, path) = (request.headers(), request.method(), request.uri().path());
        let is_exchange = *method == Method::POST && path == EXCHANGE;
        if !is_exchange && ![Method::GET, Method::HEAD].contains(method) {
            return Decision::Refuse(StatusCode::METHOD_NOT_ALLOWED, "The page is read-only.\n");
        }
        let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        if !text(&header::HOST).is_some_and(|host| self.hosts.iter().any(|own| own == host)) {
            return Decision::Refuse(StatusCode::MISDIRECTED_REQUEST, "Use http://127.0.0.1 and the port.\n");
        }
        // The files are no secret, and links from other programs open them.
        if assets::exists(path) {
            return Decision::Serve;
        }
        let is_own =
            |origin: &str| origin.strip_prefix("http://").is_some_and(|host| self.hosts.iter().any(|h| h == host));
        let fetched_by = text(&HeaderName::from_static("sec-fetch-site")).unwrap_or("none");
        let is_foreign = text(&header::ORIGIN).is_some_and(|origin| !is_own(origin));
        if is_foreign || !["same-origin", "none"].contains(&fetched_by) {
            return Decision::Refuse(StatusCode::FORBIDDEN, "Requests of other sites are refused.\n");
        }
        let presented = text(&header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer ")).map(hash);
        if is_exchange {
            let is_first = presented == Some(self.token) && !self.is_used.swap(true, Ordering::SeqCst);
            return if is_first { Decision::BeginSession } else { NOBODY };
        }
        if presented == Some(hash(&self.session)) { Decision::Serve } else { NOBODY }
    }
}

#[derive(Debug, PartialEq)]
enum Decision {
    Serve,
    BeginSession,
    Refuse(StatusCode, &'static str),
}

/// The answer to browsers without the session.
const NOBODY: Decision = Decision::Refuse(StatusCode::FORBIDDEN, NO_SESSION);

fn hash(text: &str) -> [u8; 32] {
    Sha256::digest(text).into()
}

/// A random text, in hexadecimal digits.
///
/// # Errors
///
/// If the system has no random numbers.
pub fn random() -> Result<String, String> {
    let mut bytes = [0; LENGTH];
    let random = rustls::crypto::ring::default_provider().secure_random;
    random.fill(&mut bytes).map_err(|_| "the system has no random numbers".to_owned())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn request(guard: &Guard, method: &Method, path: &str, headers: &[(&str, &str)]) -> Decision {
        let mut request = axum::http::Request::builder().method(method).uri(path);
        let host = [("host", "127.0.0.1:7000")];
        let has_host = headers.iter().any(|(name, _)| *name == "host");
        for (name, value) in headers.iter().chain(host.iter().filter(|_| !has_host)) {
            request = request.header(*name, *value);
        }
        guard.decide(&request.body(Body::empty()).unwrap())
    }

    fn get(guard: &Guard, path: &str, headers: &[(&str, &str)]) -> Decision {
        request(guard, &Method::GET, path, headers)
    }

    #[test]
    fn token_is_valid_once() {
        let (guard, token) = Guard::new(7000).unwrap();
        let exchange = |method: &Method, token: &str| {
            request(&guard, method, EXCHANGE, &[("authorization", &format!("Bearer {token}"))])
        };
        assert_eq!(exchange(&Method::POST, "wrong"), NOBODY);
        assert_eq!(exchange(&Method::POST, ""), NOBODY);
        assert_eq!(exchange(&Method::GET, &token), NOBODY);
        assert_eq!(exchange(&Method::HEAD, &token), NOBODY);
        assert_eq!(exchange(&Method::POST, &token), Decision::BeginSession);
        assert_eq!(exchange(&Method::POST, &token), NOBODY);
        assert_eq!(get(&guard, "/api/events", &[("authorization", &format!("Bearer {token}"))]), NOBODY);
    }

    #[test]
    fn data_needs_the_session_in_a_header() {
        let (guard, _) = Guard::new(7000).unwrap();
        let session = guard.session.as_str();
        let bearer = format!("Bearer {session}");
        for path in ["/api/events", "/api/diff/KnativeServing/a/b", "/api/", "/api", "/other", "//main.js", "/main.js/"]
        {
            assert_eq!(get(&guard, path, &[]), NOBODY, "{path}");
            assert_eq!(get(&guard, path, &[("authorization", &bearer)]), Decision::Serve, "{path}");
        }
        // What another port could have received from the browser.
        let cookie = format!("session={session}; knative-operator-7000={session}");
        assert_eq!(get(&guard, "/api/events", &[("cookie", &cookie)]), NOBODY);
        assert_eq!(get(&guard, "/api/events", &[("authorization", session)]), NOBODY);
        // The files have no data.
        for path in ["/", "/?token=x", "/main.js"] {
            assert_eq!(get(&guard, path, &[("sec-fetch-site", "cross-site")]), Decision::Serve, "{path}");
        }
    }

    #[test]
    fn other_hosts_sites_and_methods_are_refused() {
        let (guard, token) = Guard::new(7000).unwrap();
        let [session, token] = [&guard.session, &token].map(|secret| format!("Bearer {secret}"));
        for (header, code) in [
            (("host", "evil.example:7000"), StatusCode::MISDIRECTED_REQUEST),
            (("host", "127.0.0.1:7001"), StatusCode::MISDIRECTED_REQUEST),
            (("origin", "http://evil.example"), StatusCode::FORBIDDEN),
            (("origin", "http://127.0.0.1:7001"), StatusCode::FORBIDDEN),
            (("origin", "https://127.0.0.1:7000"), StatusCode::FORBIDDEN),
            (("origin", "null"), StatusCode::FORBIDDEN),
            (("sec-fetch-site", "same-site"), StatusCode::FORBIDDEN),
            (("sec-fetch-site", "cross-site"), StatusCode::FORBIDDEN),
        ] {
            for (method, path, secret) in [(Method::GET, "/api/events", &session), (Method::POST, EXCHANGE, &token)] {
                let refused = request(&guard, &method, path, &[("authorization", secret), header]);
                assert!(matches!(refused, Decision::Refuse(actual, _) if actual == code), "{header:?}: {refused:?}");
            }
        }
        assert!(matches!(get(&guard, "/", &[("host", "evil.example:7000")]), Decision::Refuse(..)));
        for host in ["127.0.0.1:7000", "localhost:7000"] {
            let origin = format!("http://{host}");
            let headers = [
                ("authorization", session.as_str()),
                ("host", host),
                ("origin", &origin),
                ("sec-fetch-site", "same-origin"),
            ];
            assert_eq!(get(&guard, "/api/events", &headers), Decision::Serve);
        }
        for path in ["/", "/api/events", "/api/session/"] {
            let refused = request(&guard, &Method::POST, path, &[("authorization", &session)]);
            assert!(matches!(refused, Decision::Refuse(StatusCode::METHOD_NOT_ALLOWED, _)), "{path}");
        }
    }
}
