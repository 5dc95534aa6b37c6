//! A mirror that requires authentication, in front of a registry. It refuses images of all other
//! hosts, and records what nodes ask for.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use base64::{Engine, prelude::BASE64_STANDARD};
use futures::future::BoxFuture;
use http::header::{self, HeaderMap};
use http::uri::Authority;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};

use crate::gate::{Answer, Body, Interceptor, Upstream};

/// Its host, as in docs/operate/air-gap.md.
pub const HOST: &str = "registry.example.com";
/// Its user and password.
pub const LOGIN: (&str, &str) = ("puller", "s3cret-of-the-mirror");

/// A request, and how it was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The host in the name of the image.
    pub host: String,
    /// The path of the request, without `/v2/`.
    pub path: String,
    /// The status of the response.
    pub status: StatusCode,
}

/// The mirror.
#[derive(Debug, Default)]
pub struct Mirror {
    asked: Mutex<Vec<Asked>>,
}

impl Mirror {
    /// The requests since the last call, in the order of their answers.
    pub fn take(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.asked.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The hosts of `asked`.
pub fn hosts(asked: &[Asked]) -> BTreeSet<&str> {
    asked.iter().map(|asked| asked.host.as_str()).collect()
}

impl Interceptor for Mirror {
    fn answer(self: Arc<Self>, server: Upstream, request: Request<Incoming>) -> BoxFuture<'static, Answer> {
        Box::pin(async move {
            let (host, path) = (host(&request), request.uri().path().trim_start_matches("/v2/").to_owned());
            let answer = match refusal(&host, request.headers()) {
                Some(status) => refuse(status)?,
                None => server.send(request).await?,
            };
            let asked = Asked { host, path, status: answer.status() };
            self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
            Ok(answer)
        })
    }
}

/// The host in the name of the image: containerd sends it to a mirror in the query `ns`, and other
/// clients ask the host itself.
fn host<B>(request: &Request<B>) -> String {
    let query = request.uri().query().unwrap_or_default();
    let namespace = query.split('&').find_map(|pair| pair.strip_prefix("ns="));
    let header = request.headers().get(header::HOST).and_then(|value| value.to_str().ok());
    // HTTP/2 has no such header.
    let own = header.or_else(|| request.uri().authority().map(Authority::as_str));
    namespace.or(own).unwrap_or_default().to_owned()
}

/// The status with which a request is refused.
fn refusal(host: &str, headers: &HeaderMap) -> Option<StatusCode> {
    if host != HOST {
        return Some(StatusCode::FORBIDDEN);
    }
    let login = BASE64_STANDARD.encode(format!("{}:{}", LOGIN.0, LOGIN.1));
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Basic "));
    (given != Some(login.as_str())).then_some(StatusCode::UNAUTHORIZED)
}

fn refuse(status: StatusCode) -> Answer {
    let body: Body = Empty::<Bytes>::new().map_err(|never| match never {}).boxed_unsync();
    let answer = Response::builder().status(status).header(header::WWW_AUTHENTICATE, "Basic realm=\"mirror\"");
    answer.body(body).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_login_and_the_own_host_are_accepted() {
        let login = "Basic cHVsbGVyOnMzY3JldC1vZi10aGUtbWlycm9y";
        for (url, named, authorization, expected) in [
            ("/v2/a/manifests/1?ns=registry.example.com", "other:5000", Some(login), None),
            ("/v2/", "registry.example.com", Some(login), None),
            ("https://registry.example.com/v2/", "", Some(login), None),
            ("/v2/", "registry.example.com", Some("Basic cHVsbGVy"), Some(StatusCode::UNAUTHORIZED)),
            ("/v2/", "registry.example.com", None, Some(StatusCode::UNAUTHORIZED)),
            ("/v2/?ns=ghcr.io", "registry.example.com", Some(login), Some(StatusCode::FORBIDDEN)),
            ("/v2/?a=b&ns=docker.io", "registry.example.com", None, Some(StatusCode::FORBIDDEN)),
        ] {
            let mut request = Request::builder().uri(url);
            if !named.is_empty() {
                request = request.header(header::HOST, named);
            }
            if let Some(authorization) = authorization {
                request = request.header(header::AUTHORIZATION, authorization);
            }
            let request = request.body(()).unwrap();
            assert_eq!(refusal(&host(&request), request.headers()), expected, "{url}");
        }
    }
}
