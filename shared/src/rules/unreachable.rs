//! `operator.knative.dev/on-unreachable`: what becomes of a resource whose cluster can't be reached when it is deleted.

use super::Problem;
use crate::api::Knative;
use crate::label::{ON_UNREACHABLE, ORPHAN};

/// The annotation has one value: another one would be taken for a promise.
pub fn annotation(resource: &Knative) -> Option<Problem> {
    let value = resource.meta().annotations.as_ref()?.get(ON_UNREACHABLE).filter(|v| *v != ORPHAN)?;
    Some(Problem {
        rule: "on-unreachable",
        field: format!("metadata.annotations[{ON_UNREACHABLE}]"),
        message: format!("has the unknown value \"{value}\""),
        fix: format!("set it to \"{ORPHAN}\", or remove it to have a deletion wait until the cluster can be reached"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{KnativeServing, KnativeServingSpec};

    #[test]
    fn only_orphan_means_anything() {
        let with = |value: Option<&str>| {
            let mut serving = KnativeServing::new("ks", KnativeServingSpec::default());
            serving.metadata.annotations = value.map(|v| [(ON_UNREACHABLE.to_owned(), v.to_owned())].into());
            annotation(&Knative::Serving(serving))
        };
        assert_eq!((with(None), with(Some("orphan"))), (None, None));
        let problem = with(Some("delete")).unwrap();
        assert!(problem.to_string().contains("unknown value \"delete\"; set it to \"orphan\""), "{problem}");
    }
}
