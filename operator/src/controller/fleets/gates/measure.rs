//! One measurement of a gate.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use knative_operator_shared::api::fleet::Gate;
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

use super::limits::within;
use super::subject::Subject;
use super::{event, http, job};
use crate::controller::context::Context;
use crate::controller::resolve::resolve_target;
use knative_operator_fleet::gates::Answer;

/// Time limits of a measurement, by default: of a request, and of a Job.
const TIMEOUT: Duration = Duration::from_secs(30);
const JOB_TIMEOUT: Duration = Duration::from_secs(600);

/// A measurement in progress. Dropping it ends it.
pub struct Measurement {
    answer: oneshot::Receiver<Answer>,
    _task: AbortOnDropHandle<()>,
}

impl Measurement {
    /// Starts a measurement of `gate`.
    pub fn start(cx: &Arc<Context>, subject: Subject, gate: Gate) -> Self {
        let (sender, answer) = oneshot::channel();
        let (cx, fleet) = (Arc::clone(cx), subject.fleet_uid.clone());
        let task = tokio::spawn(async move {
            let measured = AssertUnwindSafe(measure(&cx, &subject, &gate)).catch_unwind().await;
            let answer = measured.unwrap_or_else(|_| Answer::Unknown("the measurement panicked".to_owned()));
            let answer = bounded(answer);
            // The fleet may not need it any more.
            let _ = sender.send(answer);
            cx.hub_changes.record_answer(&fleet);
        });
        Self { answer, _task: AbortOnDropHandle::new(task) }
    }

    /// The result, once, if it ended.
    pub fn answer(&mut self) -> Option<Answer> {
        match self.answer.try_recv() {
            Ok(answer) => Some(answer),
            Err(oneshot::error::TryRecvError::Empty) => None,
            Err(oneshot::error::TryRecvError::Closed) => {
                Some(Answer::Unknown("the measurement ended early".to_owned()))
            }
        }
    }
}

/// `answer` with a text that may be kept and shown: parts of it are the cluster's.
fn bounded(answer: Answer) -> Answer {
    match answer {
        Answer::Success => Answer::Success,
        Answer::Failure(why) => Answer::Failure(http::shown(&why)),
        Answer::Unknown(why) => Answer::Unknown(http::shown(&why)),
    }
}

/// Measures `gate`.
async fn measure(cx: &Context, subject: &Subject, gate: &Gate) -> Answer {
    let client = match resolve_target(cx, &subject.resource, false).await {
        Ok(cluster) => cluster.client,
        Err(failure) => return Answer::Unknown(failure.unresolved.message),
    };
    let given = gate.timeout_seconds.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
    let timeout = given.unwrap_or(TIMEOUT);
    match gate {
        Gate { http: Some(http), .. } => within(&client, timeout, http::measure(&client, http)).await,
        Gate { event: Some(event), .. } => event::measure(&client, event, timeout).await,
        Gate { job: Some(job), .. } => job::measure(&client, subject, gate, job, given.unwrap_or(JOB_TIMEOUT)).await,
        _ => Answer::Unknown("the gate has neither http nor event nor job".to_owned()),
    }
}
