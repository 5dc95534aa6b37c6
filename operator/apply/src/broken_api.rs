//! Whether an API of a cluster doesn't work, or the way to its API server.
//!
//! A proxy that doesn't reach the API server, such as the tunnel of a cluster manager without its
//! agent, answers with text, and so may an aggregated API server behind a good one. The API server
//! itself tells them apart: if it answers what only it knows, it is reached.

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::core::Status;
use kube::{Api, Client};

/// API groups with a dot that Kubernetes itself serves. Others with the same domain are those of
/// CustomResourceDefinitions, such as gateway.networking.k8s.io.
const OF_KUBERNETES: [&str; 18] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

/// The reason that kube gives an answer whose body is no Status.
const NO_STATUS: &str = "Failed to parse error data";
/// Texts in a row with which an API counts as broken, while the API server answers after each. A
/// way that works every other time looks the same with few of them.
const MAX_TEXTS: usize = 5;
/// Delay before an API is asked again.
const PAUSE: Duration = Duration::from_millis(100);
/// A namespace that each cluster has.
const OF_EACH: &str = "kube-system";

/// Whether Kubernetes itself serves `group`: it refuses definitions of groups without a dot.
fn is_of_kubernetes(group: &str) -> bool {
    !group.contains('.') || OF_KUBERNETES.contains(&group)
}

/// Whether the API server itself serves `group`, and answers with a Status if it can't: Kubernetes'
/// groups, and those of Knative's definitions.
fn is_served_by_api_server(group: &str) -> bool {
    is_of_kubernetes(group) || group == "knative.dev" || group.ends_with(".knative.dev")
}

/// Whether the answer may be that of a proxy which did not reach the API server. With these codes,
/// an API server answers with a Status.
fn may_be_of_proxy(status: &Status) -> bool {
    status.reason == NO_STATUS && matches!(status.code, 400 | 502 | 504)
}

/// Whether the answer is a text instead of a Status: that of a proxy, such as a load balancer whose
/// API servers restart, or of an aggregated API server that is gone.
fn is_text(status: &Status) -> bool {
    status.reason == NO_STATUS && (status.code == 400 || status.code >= 500)
}

/// Whether `status` is that of an API which doesn't work: one of others may be gone for good, such
/// as an aggregated API server or a conversion webhook, and one that refuses to list has no
/// objects.
fn is_broken(group: &str, status: &Status) -> bool {
    let is_error =
        (status.code >= 500 && !is_of_kubernetes(group)) || matches!(status.code, 400 | 403 | 406 | 415 | 422);
    is_error && !is_text(status)
}

/// Whether the API server of `client` itself answers now.
async fn answers(client: &Client) -> bool {
    match Api::<Namespace>::all(client.clone()).get_metadata_opt(OF_EACH).await {
        Ok(found) => found.is_some(),
        // The account may not read it.
        Err(kube::Error::Api(status)) => status.code == 403 && status.reason != NO_STATUS,
        Err(_) => false,
    }
}

/// Whether `error` about an API of `group` means that the way to the API server doesn't work,
/// although something answered.
pub async fn is_of_proxy(client: &Client, group: &str, error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    may_be_of_proxy(status) && is_unreached(client, group).await
}

/// Whether a text about an API of `group` is not that of the API itself.
async fn is_unreached(client: &Client, group: &str) -> bool {
    is_served_by_api_server(group) || !answers(client).await
}

/// The answers of an API, of which it is not known whether it works.
pub struct Trial<'a> {
    client: &'a Client,
    group: &'a str,
    /// Texts so far.
    texts: usize,
}

impl<'a> Trial<'a> {
    /// Of an API of `group`.
    pub fn new(client: &'a Client, group: &'a str) -> Self {
        Self { client, group, texts: 0 }
    }

    /// Whether the API is broken, as `error` shows. Otherwise the caller asks it again.
    ///
    /// # Errors
    ///
    /// `error` itself, if the API may work: nothing is known about its objects.
    pub async fn is_broken(&mut self, error: kube::Error) -> kube::Result<bool> {
        let kube::Error::Api(status) = &error else { return Err(error) };
        if is_broken(self.group, status) {
            return Ok(true);
        }
        if !is_text(status) || is_unreached(self.client, self.group).await {
            return Err(error);
        }
        self.texts += 1;
        if self.texts < MAX_TEXTS {
            tokio::time::sleep(PAUSE).await;
        }
        Ok(self.texts >= MAX_TEXTS)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    /// A cluster whose API server, or a proxy before it, answers about its namespace with `code`.
    fn cluster(code: u16, is_text: bool) -> Client {
        let answer = move |request: Request<Body>| async move {
            assert_eq!(request.uri().path(), "/api/v1/namespaces/kube-system");
            let body = match code {
                _ if is_text => "no tunnel".to_owned(),
                200 => json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "kube-system"}})
                    .to_string(),
                _ => json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "reason": "no", "code": code})
                    .to_string(),
            };
            let mut response = Response::new(Body::from(body.into_bytes()));
            *response.status_mut() = code.try_into().unwrap();
            Ok::<_, Infallible>(response)
        };
        Client::new(tower::service_fn(answer), "n")
    }

    fn text(code: u16) -> kube::Error {
        kube::Error::Api(Box::new(Status::failure("proxy to anp-proxy-server failed", NO_STATUS).with_code(code)))
    }

    fn refused(code: u16) -> kube::Error {
        kube::Error::Api(Box::new(Status::failure("no", "BadRequest").with_code(code)))
    }

    #[test]
    fn apis_of_others_may_be_broken() {
        let broken = |group: &str, code: u16| is_broken(group, &Status { code, ..Status::default() });
        for group in ["", "apps", "batch", "networking.k8s.io", "rbac.authorization.k8s.io", "apiextensions.k8s.io"] {
            assert!(!broken(group, 500) && !broken(group, 503) && broken(group, 403), "{group}");
        }
        for group in [
            "groupsnapshot.storage.k8s.io",
            "gateway.networking.k8s.io",
            "metrics.k8s.io",
            "custom.metrics.k8s.io",
            "serving.knative.dev",
            "example.com",
        ] {
            assert!(broken(group, 500) && broken(group, 503) && !broken(group, 429), "{group}");
        }
        // A proxy answers so for a moment, and an aggregated API whose server is gone for good.
        let gone = Status::failure("service unavailable", NO_STATUS).with_code(503);
        assert!(!is_broken("custom.metrics.k8s.io", &gone));
    }

    #[tokio::test]
    async fn text_is_that_of_a_proxy_unless_the_api_server_answers() {
        let unreached = [cluster(502, true), cluster(404, true), cluster(403, true), cluster(500, false)];
        for code in [400, 502, 504] {
            for reached in [cluster(200, false), cluster(403, false)] {
                assert!(!is_of_proxy(&reached, "custom.metrics.k8s.io", &text(code)).await, "{code}");
                // The API server would not answer so.
                for group in ["", "apps", "networking.k8s.io", "serving.knative.dev"] {
                    assert!(is_of_proxy(&reached, group, &text(code)).await, "{code} {group}");
                }
            }
            for unreached in &unreached {
                assert!(is_of_proxy(unreached, "custom.metrics.k8s.io", &text(code)).await, "{code}");
                assert!(!is_of_proxy(unreached, "apps", &refused(code)).await, "{code}");
            }
        }
        for code in [404, 413, 429, 503] {
            assert!(!is_of_proxy(&unreached[0], "apps", &text(code)).await, "{code}");
        }
    }

    #[tokio::test]
    async fn api_that_answers_with_text_is_broken_after_several_tries() {
        let reached = cluster(200, false);
        for code in [502, 503] {
            let mut trial = Trial::new(&reached, "example.com");
            for _ in 1..MAX_TEXTS {
                assert!(!trial.is_broken(text(code)).await.unwrap());
            }
            assert!(trial.is_broken(text(code)).await.unwrap());
        }
        assert!(Trial::new(&reached, "example.com").is_broken(refused(400)).await.unwrap());
        // It may have objects of the installation.
        for (cluster, group, error) in [
            (&cluster(502, true), "example.com", text(502)),
            (&reached, "serving.knative.dev", text(502)),
            (&cluster(502, true), "example.com", text(503)),
            (&reached, "serving.knative.dev", text(503)),
            (&reached, "apps", refused(500)),
            (&reached, "example.com", refused(429)),
        ] {
            assert!(Trial::new(cluster, group).is_broken(error).await.is_err(), "{group}");
        }
    }
}
