//! Pages of lists: few enough, since a hostile API server may answer without end, and small enough
//! for the limits on responses.

use std::fmt::Debug;
use std::time::Duration;

use kube::Api;
use kube::api::ListParams;
use kube::core::{ObjectList, PartialObjectMeta};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use knative_operator_runtime::body::is_too_large;

/// Maximum number of pages of a list, and time limit.
const LIMITS: (usize, Duration) = (500, Duration::from_secs(60));

/// Why a list is not read to its end.
#[derive(Debug, thiserror::Error)]
enum EndlessList {
    #[error("the list has more than {0} pages")]
    Pages(usize),
    #[error("the API server did not list all within {0:?}")]
    TimedOut(Duration),
}

/// The pages of one list that may be read.
pub struct Pages {
    limits: (usize, Duration),
    read: usize,
    until: Instant,
}

impl Pages {
    /// At most five hundred, within a minute from now on.
    pub fn new() -> Self {
        Self::limited(LIMITS)
    }

    fn limited(limits: (usize, Duration)) -> Self {
        Self { limits, read: 0, until: Instant::now() + limits.1 }
    }

    /// The page for `parameters`.
    pub async fn next<K>(
        &mut self,
        api: &Api<K>,
        parameters: &ListParams,
    ) -> kube::Result<ObjectList<PartialObjectMeta<K>>>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        let endless = |why: EndlessList| kube::Error::Service(why.into());
        let (most, within) = self.limits;
        if self.read >= most {
            return Err(endless(EndlessList::Pages(most)));
        }
        self.read += 1;
        let page = tokio::time::timeout_at(self.until, page(api, parameters)).await;
        page.unwrap_or_else(|_| Err(endless(EndlessList::TimedOut(within))))
    }
}

/// The metadata of the objects of a page. If they are too large together, of fewer: anybody who may
/// write objects can make them large.
pub async fn page<K>(api: &Api<K>, parameters: &ListParams) -> kube::Result<ObjectList<PartialObjectMeta<K>>>
where
    K: Clone + DeserializeOwned + Debug,
{
    let mut parameters = parameters.clone();
    loop {
        match (api.list_metadata(&parameters).await, parameters.limit) {
            (Err(error), Some(limit)) if limit > 1 && is_too_large(&error) => {
                parameters.limit = Some((limit / 10).max(1));
            }
            (page, _) => return page,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use k8s_openapi::api::core::v1::ConfigMap;
    use knative_operator_runtime::error_text;
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;

    use super::*;
    use knative_operator_runtime::body::BodyError;

    /// An API server that gives an empty page, with a next one, `delay` after each request.
    fn endless(delay: Duration) -> Api<ConfigMap> {
        let answer = move |_: Request<Body>| async move {
            tokio::time::sleep(delay).await;
            let list = json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                "metadata": {"continue": "more"}, "items": []});
            Ok::<_, BodyError>(Response::new(Body::from(list.to_string().into_bytes())))
        };
        Api::all(Client::new(tower::service_fn(answer), "n"))
    }

    #[tokio::test]
    async fn endless_list_is_an_error() {
        let (minute, parameters) = (Duration::from_secs(60), ListParams::default());
        let (api, mut pages) = (endless(Duration::ZERO), Pages::limited((3, minute)));
        for _ in 0..3 {
            assert!(pages.next(&api, &parameters).await.is_ok());
        }
        let error = error_text(&pages.next(&api, &parameters).await.unwrap_err());
        assert_eq!(error, "the list has more than 3 pages");
        let mut pages = Pages::limited((3, Duration::from_millis(1)));
        let error = error_text(&pages.next(&endless(minute), &parameters).await.unwrap_err());
        assert_eq!(error, "the API server did not list all within 1ms");
    }

    #[tokio::test]
    async fn too_large_page_is_asked_for_in_parts() {
        // An API server whose objects fit into a response five at a time.
        let answer = |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            async move {
                let limit = query.split('&').find_map(|part| part.strip_prefix("limit="));
                let limit: usize = limit.and_then(|limit| limit.parse().ok()).unwrap_or_default();
                if limit > 5 {
                    return Err(BodyError::TooManyValues);
                }
                let items = vec![json!({"metadata": {"name": "a"}}); limit];
                let list = json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                    "metadata": {"continue": "more"}, "items": items});
                Ok(Response::new(Body::from(list.to_string().into_bytes())))
            }
        };
        let api = Api::<ConfigMap>::all(Client::new(tower::service_fn(answer), "n"));
        let page = page(&api, &ListParams::default().limit(500)).await.unwrap();
        assert_eq!((page.items.len(), page.metadata.continue_.as_deref()), (5, Some("more")));
    }
}
