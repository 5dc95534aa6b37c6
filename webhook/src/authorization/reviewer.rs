//! Asks the API server, by SubjectAccessReview.

use k8s_openapi::api::authorization::v1::SubjectAccessReviewSpec;
use knative_operator_runtime::{access, error_text};
use knative_operator_shared::authorization::permission::Permission;
use kube::Client;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::answer::Answer;
use super::cache::Cache;
use crate::metrics::{Metrics, Source};
use crate::request::UserInfo;

/// Maximum number of requests in progress.
const MAX_REQUESTS: usize = 64;

/// Asks the API server, and keeps its answers for a few seconds.
pub struct Reviewer {
    client: Client,
    requests: Semaphore,
    cache: Cache,
    metrics: Metrics,
}

impl Reviewer {
    /// Asks with `client`.
    pub fn new(client: Client, metrics: Metrics) -> Self {
        Self { client, requests: Semaphore::new(MAX_REQUESTS), cache: Cache::new(), metrics }
    }

    /// Whether `user` has `permission`; unknown after `deadline`.
    pub async fn ask(&self, user: &UserInfo, permission: &Permission, deadline: Instant) -> Answer {
        let entry = self.cache.entry(user, permission);
        let source = if entry.allowed.initialized() { Source::Cache } else { Source::ApiServer };
        let allowed = entry.allowed.get_or_try_init(|| self.request(user, permission));
        let answer = match tokio::time::timeout_at(deadline, allowed).await {
            Ok(Ok(true)) => Answer::Allowed,
            Ok(Ok(false)) => Answer::Denied,
            Ok(Err(())) | Err(_) => Answer::Unknown,
        };
        let result = match answer {
            Answer::Allowed => "allowed",
            Answer::Denied => "denied",
            Answer::Unknown => "error",
        };
        self.metrics.count_authorization(source, result);
        answer
    }

    async fn request(&self, user: &UserInfo, permission: &Permission) -> Result<bool, ()> {
        let _permit = self.requests.acquire().await.map_err(drop)?;
        let question = SubjectAccessReviewSpec {
            user: Some(user.username.clone()),
            uid: (!user.uid.is_empty()).then(|| user.uid.clone()),
            groups: Some(user.groups.clone()),
            extra: Some(user.extra.clone()),
            resource_attributes: Some(permission.attributes()),
            ..SubjectAccessReviewSpec::default()
        };
        let started = Instant::now();
        let answer = access::is_allowed(&self.client, question).await;
        self.metrics.observe_authorization(started.elapsed());
        answer.map_err(|error| tracing::warn!(error = error_text(&error), "failed to check a permission of a user"))
    }
}
