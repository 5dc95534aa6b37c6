//! Ends the suspension of the webhook's configurations after its time, if no webhook does: the
//! chart suspends them in a migration from the Go operator, and while a match condition suspends
//! them, the API server asks nobody about deletions.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use knative_operator_certs::inject::Configurations;
use knative_operator_runtime::error_text;
use knative_operator_shared::label::FIELD_MANAGER;
use kube::Client;

/// Names of the configurations.
const VALIDATING: &str = "validation.operator.knative.dev";
const MUTATING: &str = "defaulting.operator.knative.dev";
/// Time until the first check: the webhook normally ends the suspension within seconds, and it has
/// a time of 15 minutes.
const FIRST: Duration = Duration::from_secs(16 * 60);
/// Interval of checks.
const INTERVAL: Duration = Duration::from_secs(3600);

/// Checks from time to time, until the task ends, or the operator may not read the configurations.
pub async fn end_overdue_suspensions(client: Client) {
    let configurations =
        Configurations { client: &client, validating: VALIDATING, mutating: MUTATING, manager: FIELD_MANAGER };
    let mut delay = FIRST;
    loop {
        tokio::time::sleep(delay).await;
        delay = match end_overdue(&configurations).await {
            Ok(is_suspended) => {
                if is_suspended {
                    FIRST
                } else {
                    INTERVAL
                }
            }
            // Without a local installation, it may read them only while they are suspended.
            Err(kube::Error::Api(status)) if status.code == 403 => return,
            Err(error) => {
                tracing::warn!(error = error_text(&error), "cannot check whether the webhook is suspended");
                FIRST
            }
        };
    }
}

/// Ends a suspension whose time is over; returns whether there is another one.
async fn end_overdue(configurations: &Configurations<'_>) -> kube::Result<bool> {
    let Some(suspension) = configurations.suspension().await? else { return Ok(false) };
    if !suspension.is_over(Timestamp::now()) {
        return Ok(true);
    }
    configurations.resume().await?;
    tracing::warn!("the webhook did not end the suspension of its configurations in time; ended it");
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::{Method, Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// Whether there is still a suspension with the condition `expression`, and the patches.
    async fn end(expression: &str) -> (bool, Vec<Value>) {
        let webhook = json!({"name": "w", "clientConfig": {}, "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "matchConditions": [{"name": "matters", "expression": "true"}, {"name": "rolled-out", "expression": expression}]});
        let patches = Arc::<Mutex<Vec<Value>>>::default();
        let log = Arc::clone(&patches);
        let answers = tower::service_fn(move |request: Request<Body>| {
            let (log, webhook) = (Arc::clone(&log), webhook.clone());
            async move {
                let kind = if request.uri().path().contains("/validating") { "Validating" } else { "Mutating" };
                if request.method() == Method::PATCH {
                    let body = request.into_body().collect_bytes().await.unwrap();
                    log.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
                }
                let found = json!({"apiVersion": "admissionregistration.k8s.io/v1",
                    "kind": format!("{kind}WebhookConfiguration"), "metadata": {"name": "x"}, "webhooks": [webhook]});
                Ok::<_, std::convert::Infallible>(Response::new(Body::from(found.to_string().into_bytes())))
            }
        });
        let client = Client::new(answers, "n");
        let configurations =
            Configurations { client: &client, validating: VALIDATING, mutating: MUTATING, manager: FIELD_MANAGER };
        let is_suspended = end_overdue(&configurations).await.unwrap();
        let patches = patches.lock().unwrap().clone();
        (is_suspended, patches)
    }

    #[tokio::test]
    async fn overdue_suspension_is_removed_from_both_configurations() {
        let at = |time: &str| format!("timestamp(entry.time) > timestamp('{time}')");
        let (is_suspended, patches) = end(&at("2020-01-01T00:00:00Z")).await;
        assert!(!is_suspended);
        let expected = json!([{"op": "test", "path": "/webhooks/0/name", "value": "w"},
            {"op": "test", "path": "/webhooks/0/matchConditions/1/name", "value": "rolled-out"},
            {"op": "remove", "path": "/webhooks/0/matchConditions/1"}]);
        assert_eq!(patches, [expected.clone(), expected]);
        // Not before, and not without a time.
        for expression in [at("2999-01-01T00:00:00Z"), "false".to_owned()] {
            assert_eq!(end(&expression).await, (true, Vec::new()), "{expression}");
        }
    }
}
