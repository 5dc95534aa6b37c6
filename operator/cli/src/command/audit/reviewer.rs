//! Asks the API server about permissions, each question once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::authorization::v1::SubjectAccessReviewSpec;
use knative_operator_rules::authorization::permission::Permission;
use knative_operator_runtime::access;
use kube::Client;
use tokio::sync::OnceCell;

use super::super::list::explained;
use super::subject::Subject;

/// Who asks what.
type Key = (Subject, Permission);

/// Asks the API server, and keeps its answers.
pub struct Reviewer {
    client: Client,
    answers: Mutex<HashMap<Key, Arc<OnceCell<bool>>>>,
}

impl Reviewer {
    /// Asks with `client`.
    pub fn new(client: Client) -> Self {
        Self { client, answers: Mutex::default() }
    }

    /// Whether `subject` has `permission`. Those who ask the same at the same time share the
    /// request.
    pub async fn is_allowed(&self, subject: &Subject, permission: &Permission) -> Result<bool, String> {
        let answer = self.answer(subject, permission);
        answer.get_or_try_init(|| self.request(subject, permission)).await.copied()
    }

    fn answer(&self, subject: &Subject, permission: &Permission) -> Arc<OnceCell<bool>> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(answers.entry((subject.clone(), permission.clone())).or_default())
    }

    async fn request(&self, subject: &Subject, permission: &Permission) -> Result<bool, String> {
        let question = SubjectAccessReviewSpec {
            user: subject.user.clone(),
            groups: Some(subject.groups.clone()),
            resource_attributes: Some(permission.attributes()),
            ..SubjectAccessReviewSpec::default()
        };
        access::is_allowed(&self.client, question).await.map_err(|error| {
            let why = explained(&error, "create", "subjectaccessreviews.authorization.k8s.io");
            format!("cannot check whether {subject} is allowed to {}: {why}", permission.action())
        })
    }
}
