//! The namespace on a spoke that existed before the installation: what others have put into it.

use knative_operator_shared::api::Knative;
use knative_operator_shared::label::TAKE_OVER;
use knative_operator_shared::text::{clip, one_line};

use super::moved;
use super::owner::{Ownership, Unclaimed};
use super::state::ReconcilerState;
use knative_operator_apply::contents;

/// Maximum length of an error in the status, in bytes.
const MAX_ERROR: usize = 300;

impl Ownership<'_> {
    /// Reports what others have put into the namespace on the spoke, which existed before; fails if
    /// the settings refuse that, or if the ClusterProfile referred to another cluster before, and
    /// it may be Knative of somebody else.
    pub(super) async fn look_into_namespace(&self, state: &mut ReconcilerState) -> Result<(), Unclaimed> {
        let namespace = self.resource.target_namespace();
        // The Go operator installed there, or the former owner is just leaving, and nothing can be
        // created. Annotations of the namespace show nothing: its creator chooses them.
        if self.resource.has_installed() || self.store.has_terminating_namespace(&self.cluster.client).await? {
            return Ok(());
        }
        let must_wait = is_on_another_cluster(self.resource, self.cluster.uid.as_deref());
        let found = match Box::pin(contents::of_others(&self.cluster.client, namespace)).await {
            Ok(found) => found,
            Err(why) if self.cx.refuses_used_namespaces || must_wait => {
                return Err(Unclaimed::Failed(format!("cannot look into namespace {namespace}: {why}")));
            }
            Err(error) => {
                tracing::warn!(
                    namespace,
                    error = error.to_string(),
                    "cannot look into the namespace, which existed before"
                );
                // Who put something there may be who keeps it from being read.
                let text = format!("unknown: {}", clip(&one_line(&error.to_string()), MAX_ERROR));
                let note = format!(
                    "Namespace {namespace} on the cluster existed before, and whether others have objects in it is {text}"
                );
                self.cx.events.warning(self.resource, "NamespaceUsed", note);
                state.namespace_contents = Some(text);
                return Ok(());
            }
        };
        let text = contents::text(&found);
        state.namespace_contents = Some(text.clone());
        if found.is_empty() {
            return Ok(());
        }
        let note = format!("Namespace {namespace} on the cluster existed before, with objects of others: {text}");
        if self.cx.refuses_used_namespaces {
            let way = "Remove them, or install the operator's chart without knative_operator.multicluster.refuseUsedNamespaces";
            return Err(Unclaimed::Failed(format!("{note}. {way}")));
        }
        if must_wait && contents::may_be_installation(&found) {
            let (plural, name) = (self.resource.component().plural(), self.resource.name());
            let uid = self.cluster.uid.as_deref().unwrap_or_default();
            // Not at the end: `knative-operator take-over` must not do it for many at once.
            return Err(Unclaimed::Used(format!(
                "{note}. The ClusterProfile referred to another cluster before, so they are left unchanged. Remove them; or, to overwrite \
                 them, run \"kubectl annotate --overwrite {plural} {name} -n {} {TAKE_OVER}={uid}\"",
                self.resource.namespace()
            )));
        }
        self.cx.events.warning(self.resource, "NamespaceUsed", note);
        Ok(())
    }
}

/// Whether `resource` was installed on other clusters before, and nobody asked to overwrite what is
/// on the one with the uid `cluster`.
fn is_on_another_cluster(resource: &Knative, cluster: Option<&str>) -> bool {
    moved::has_former(resource) && cluster.is_none_or(|uid| resource.annotation(TAKE_OVER) != Some(uid))
}

#[cfg(test)]
mod tests {
    use knative_operator_shared::api::{KnativeServing, KnativeStatus};
    use knative_operator_shared::label::FORMER_CLUSTERS;

    use super::*;

    #[test]
    fn moved_resource_overwrites_nothing_unasked() {
        let waits = |former: &str, take_over: Option<&str>, cluster: Option<&str>| {
            let mut serving = KnativeServing::default();
            let annotations = take_over.map(|value| (TAKE_OVER.to_owned(), value.to_owned()));
            serving.metadata.annotations = Some(annotations.into_iter().collect());
            let annotations = [(FORMER_CLUSTERS.to_owned(), former.to_owned())].into();
            serving.status = Some(KnativeStatus { annotations, ..KnativeStatus::default() });
            is_on_another_cluster(&Knative::Serving(serving), cluster)
        };
        let former = r#"[{"uid": "1", "namespace": "knative-serving", "left": "2026-01-01T00:00:00Z"}]"#;
        assert!(waits(former, None, Some("2")) && waits(former, None, None));
        // That of a former move, or of a hub.
        assert!(waits(former, Some("1"), Some("2")) && waits(former, Some(""), None));
        assert!(!waits(former, Some("2"), Some("2")) && !waits("[]", None, Some("2")));
    }
}
