//! `spec.namespaceConfiguration` and `spec.namespace`: two names, one meaning.

use super::Problem;
use crate::api::{Knative, NamespaceConfiguration};

/// Both names may be given only if they say the same. An empty block says nothing.
pub fn one_meaning(resource: &Knative) -> Option<Problem> {
    let common = resource.common();
    let (documented, go) = (common.namespace_configuration.as_ref()?, common.namespace.as_ref()?);
    let empty = NamespaceConfiguration::default();
    (documented != go && *documented != empty && *go != empty).then(|| Problem {
        rule: "namespace-settings-one-meaning",
        field: "spec.namespaceConfiguration".to_owned(),
        message: "says something else than spec.namespace, which has the same meaning".to_owned(),
        fix: "keep spec.namespaceConfiguration and remove spec.namespace".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::KnativeEventing;

    #[test]
    fn both_names_are_fine_only_when_they_agree() {
        let settings =
            |value: &str| Some(NamespaceConfiguration { labels: [("a".to_owned(), value.to_owned())].into(), ..Default::default() });
        let mut eventing = KnativeEventing::default();
        eventing.spec.common.namespace = settings("1");
        assert_eq!(one_meaning(&Knative::Eventing(eventing.clone())), None);
        eventing.spec.common.namespace_configuration = settings("1");
        assert_eq!(one_meaning(&Knative::Eventing(eventing.clone())), None);
        eventing.spec.common.namespace_configuration = settings("2");
        assert!(one_meaning(&Knative::Eventing(eventing)).is_some());
    }
}
