//! The time limit of a request.

use std::time::Duration;

use kube::Client;

use knative_operator_fleet::gates::Answer;

/// Time limit of the request that tells whether the API server of a cluster responds.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// The answer of `measuring` within `timeout`. After it, a cluster whose API server responds has
/// failed; about another one, nothing is known.
pub async fn within(client: &Client, timeout: Duration, measuring: impl Future<Output = Answer>) -> Answer {
    if let Ok(answer) = tokio::time::timeout(timeout, measuring).await {
        return answer;
    }
    match tokio::time::timeout(PROBE_TIMEOUT, client.apiserver_version()).await {
        Ok(Ok(_)) => Answer::Failure(format!("no response within {} s", timeout.as_secs())),
        _ => Answer::Unknown("the API server of the cluster does not respond".to_owned()),
    }
}
