//! Which new clusters a fleet may not have: the author of a fleet may have lost the permission to
//! use them since the webhook asked about it. Clusters with a resource of the fleet are not asked
//! about.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use knative_operator_rules::authorization::author::User;
use knative_operator_rules::authorization::permission::Permission;
use knative_operator_shared::api::{ClusterProfileReference, KnativeFleet};
use knative_operator_shared::label::AUTHOR;

use super::children::Children;
use crate::controller::author::{Authors, Unasked};

/// Time for which a permission is kept while clusters wait for their turn.
const PERMITTED: Duration = Duration::from_secs(10);
/// Time for which a refusal is kept.
const REFUSED: Duration = Duration::from_secs(60);
/// Clusters for which both are kept a second longer.
const PER_SECOND: usize = 10;
/// Delay before a question is repeated that the API server didn't answer.
const RETRY: Duration = Duration::from_secs(5);
/// Maximum number of requests in progress.
const CONCURRENCY: usize = 16;

/// Answers of the API server about an author.
#[derive(Debug, Default)]
pub struct Answers {
    author: Option<User>,
    known: HashMap<Permission, (Result<bool, Arc<Unasked>>, Instant)>,
}

impl Answers {
    /// The clusters among the `new` ones that `fleet` may not have, with the reason.
    pub async fn refused(
        &mut self,
        authors: Option<&Authors>,
        fleet: &KnativeFleet,
        new: Vec<&ClusterProfileReference>,
    ) -> BTreeMap<ClusterProfileReference, String> {
        let recorded = fleet.metadata.annotations.as_ref().and_then(|all| all.get(AUTHOR));
        let author = recorded.and_then(|recorded| User::decode(recorded));
        if self.author != author {
            *self = Self { author, ..Self::default() };
        }
        let Some(authors) = authors else { return BTreeMap::new() };
        let Some(author) = self.author.clone() else {
            // Without the annotation, an earlier version stored the fleet: `audit` lists it.
            let unknown = recorded.map(|_| format!("the annotation {AUTHOR} of the fleet names nobody"));
            return unknown.iter().flat_map(|why| new.iter().map(|one| ((*one).clone(), why.clone()))).collect();
        };
        // Clusters that join later are asked about then.
        if new.is_empty() {
            self.known.clear();
        }
        self.forget(Duration::from_secs((new.len() / PER_SECOND) as u64));
        // Most authors may use all of a namespace: that is one question.
        let namespaces: BTreeSet<&str> = new.iter().map(|cluster| cluster.namespace.as_str()).collect();
        self.ask(authors, &author, namespaces.into_iter().map(|namespace| Permission::to_use(namespace, ""))).await;
        let is_open = |of: &Self, cluster: &ClusterProfileReference| {
            matches!(of.answer(&Permission::to_use(&cluster.namespace, "")), Ok(true))
        };
        let rest: Vec<&ClusterProfileReference> = new.into_iter().filter(|cluster| !is_open(self, cluster)).collect();
        let by_name = |cluster: &ClusterProfileReference| Permission::to_use(&cluster.namespace, &cluster.name);
        self.ask(authors, &author, rest.iter().map(|cluster| by_name(cluster))).await;
        let refused = rest.into_iter().filter_map(|cluster| {
            let permission = by_name(cluster);
            let why = match self.answer(&permission) {
                Ok(true) => return None,
                Ok(false) => message(fleet, &author, &permission),
                Err(why) => why.to_string(),
            };
            Some((cluster.clone(), why))
        });
        refused.collect()
    }

    /// When to ask again: while new clusters wait, a permission may be given or taken.
    pub fn retry(&self) -> Option<Duration> {
        let is_unknown = self.known.values().any(|(answer, _)| answer.is_err());
        (!self.known.is_empty()).then_some(if is_unknown { RETRY } else { REFUSED })
    }

    fn answer(&self, permission: &Permission) -> Result<bool, Arc<Unasked>> {
        self.known.get(permission).map_or(Ok(false), |(answer, _)| answer.clone())
    }

    fn forget(&mut self, longer: Duration) {
        self.known.retain(|_, (answer, at)| {
            let lifetime = match answer {
                Ok(true) => PERMITTED + longer,
                Ok(false) => REFUSED + longer,
                Err(_) => RETRY,
            };
            at.elapsed() < lifetime
        });
    }

    async fn ask(&mut self, authors: &Authors, author: &User, permissions: impl Iterator<Item = Permission>) {
        let unknown: Vec<Permission> = permissions.filter(|permission| !self.known.contains_key(permission)).collect();
        let asked = stream::iter(unknown).map(async |permission| {
            let answer = authors.is_allowed(author, &permission).await.map_err(Arc::new);
            (permission, (answer, Instant::now()))
        });
        self.known.extend(asked.buffer_unordered(CONCURRENCY).collect::<Vec<_>>().await);
    }
}

/// Those of the selected `clusters` that have no resource of the fleet, which has others on the
/// clusters that it `left`.
pub fn without_child<'c>(
    (clusters, left): (&'c [ClusterProfileReference], &BTreeSet<ClusterProfileReference>),
    children: &Children,
) -> Vec<&'c ClusterProfileReference> {
    let with = || children.own().keys().map(|(cluster, _)| cluster).collect::<HashSet<&ClusterProfileReference>>();
    // After the installation, all have one.
    if children.clusters() == clusters.len() + left.len() {
        debug_assert!(with().is_superset(&clusters.iter().collect()), "a new cluster is not asked about");
        return Vec::new();
    }
    let with = with();
    clusters.iter().filter(|cluster| !with.contains(*cluster)).collect()
}

/// What is wrong, and what to do.
fn message(fleet: &KnativeFleet, author: &User, permission: &Permission) -> String {
    let meta = &fleet.metadata;
    let (namespace, name) = (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
    format!(
        "user \"{}\", who chose the clusters of the fleet, is not allowed to {}; bind ClusterRole {} by a {}, or answer for the \
         fleet as a user with that permission: kubectl annotate --overwrite knativefleets {name} -n {namespace} {AUTHOR}=me",
        author.username,
        permission.action(),
        permission.role(),
        permission.binding(),
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use http::{Request, Response};
    use knative_operator_shared::api::{Component, Knative};
    use kube::Client;
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::super::selected::Selected;
    use super::*;

    /// Authors on a hub where the user `jane` may use what is in `permitted`: a namespace, or
    /// `NAMESPACE/NAME`. The hub answers nothing about `broken`. Also the questions.
    fn authors(permitted: &'static [&'static str]) -> (Authors, Arc<Mutex<Vec<String>>>) {
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let log = Arc::clone(&asked);
        let answers = tower::service_fn(move |request: Request<Body>| {
            let log = Arc::clone(&log);
            async move {
                let body = request.into_body().collect_bytes().await.unwrap();
                let mut review: Value = serde_json::from_slice(&body).unwrap();
                let of = &review["spec"]["resourceAttributes"];
                let text = |field: &str| of[field].as_str().unwrap_or_default().to_owned();
                let (namespace, name) = (text("namespace"), text("name"));
                let what = if name.is_empty() { namespace } else { format!("{namespace}/{name}") };
                let code = if what.starts_with("broken") { 500 } else { 200 };
                review["status"] =
                    json!({"allowed": review["spec"]["user"] == "jane" && permitted.contains(&what.as_str())});
                log.lock().unwrap().push(what);
                Ok::<_, std::convert::Infallible>(
                    Response::builder().status(code).body(Body::from(review.to_string().into_bytes())).unwrap(),
                )
            }
        });
        (Authors::new(Client::new(answers, "n"), "n"), asked)
    }

    fn fleet(author: &str) -> KnativeFleet {
        let author = json!({"username": author}).to_string();
        serde_json::from_value(json!({"metadata": {"name": "f", "namespace": "n", "annotations": {AUTHOR: author}},
            "spec": {"placement": {"clusterSelector": {}}}}))
        .unwrap()
    }

    fn cluster(namespace: &str, name: &str) -> ClusterProfileReference {
        ClusterProfileReference { name: name.to_owned(), namespace: namespace.to_owned() }
    }

    #[tokio::test]
    async fn new_clusters_need_the_permission_of_the_author() {
        let clusters = [
            cluster("open", "a"),
            cluster("open", "b"),
            cluster("closed", "c"),
            cluster("closed", "d"),
            cluster("broken", "e"),
        ];
        let (authors, asked) = authors(&["open", "closed/c"]);
        let mut answers = Answers::default();
        let refused = answers.refused(Some(&authors), &fleet("jane"), clusters.iter().collect()).await;
        assert_eq!(refused.keys().map(|cluster| cluster.name.as_str()).collect::<Vec<_>>(), ["d", "e"]);
        let why = &refused[&clusters[3]];
        let start = "user \"jane\", who chose the clusters of the fleet, is not allowed to use ClusterProfile \"closed/d\"; bind";
        assert!(
            why.starts_with(start) && why.ends_with("knativefleets f -n n operator.knative.dev/author=me"),
            "{why}"
        );
        assert!(refused[&clusters[4]].starts_with("cannot check the permission"), "{refused:?}");
        assert_eq!(answers.retry(), Some(RETRY));
        // One question for all clusters of a namespace, and none again soon.
        let mut questions = std::mem::take(&mut *asked.lock().unwrap());
        questions.sort();
        assert_eq!(questions, ["broken", "broken/e", "closed", "closed/c", "closed/d", "open"]);
        answers.refused(Some(&authors), &fleet("jane"), clusters.iter().collect()).await;
        assert!(asked.lock().unwrap().is_empty());
        // A permission is not kept for a cluster that joins later.
        answers.refused(Some(&authors), &fleet("jane"), Vec::new()).await;
        assert_eq!(answers.retry(), None);
        answers.refused(Some(&authors), &fleet("jane"), vec![&clusters[0]]).await;
        assert_eq!(answers.retry(), Some(REFUSED));
        assert_eq!(*asked.lock().unwrap(), ["open"]);
        // Another author is asked about at once.
        let refused = answers.refused(Some(&authors), &fleet("joe"), clusters.iter().collect()).await;
        assert_eq!(refused.len(), clusters.len());
        // Nobody enforces permissions, or an earlier version stored the fleet.
        assert!(answers.refused(None, &fleet("joe"), clusters.iter().collect()).await.is_empty());
        let mut stored = fleet("joe");
        stored.metadata.annotations = None;
        assert!(answers.refused(Some(&authors), &stored, clusters.iter().collect()).await.is_empty());
        // The user has too many groups to record.
        let refused = answers.refused(Some(&authors), &fleet(""), clusters.iter().collect()).await;
        assert_eq!(refused.len(), clusters.len());
    }

    #[test]
    fn clusters_without_a_resource_are_new() {
        let cluster = |name: &str| ClusterProfileReference { name: name.to_owned(), namespace: "f".to_owned() };
        let serving = Arc::new(Knative::Serving(<_>::default()));
        let own = ["a", "left"].into_iter().flat_map(|name| Component::ALL.map(|component| (cluster(name), component)));
        let children: Children = own.map(|key| (key, Arc::clone(&serving))).collect();
        let new = |selected: &[&str]| {
            let selected = Selected::from(selected.iter().map(|name| cluster(name)).collect::<Vec<_>>());
            let new = without_child((&selected.clusters, &children.left(&selected)), &children);
            new.iter().map(|cluster| cluster.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!((new(&["a"]), new(&["a", "b"]), new(&["b"])), (vec![], vec!["b".to_owned()], vec!["b".to_owned()]));
    }
}
