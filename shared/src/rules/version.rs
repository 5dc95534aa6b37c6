//! `spec.version`: something that can be a version.

use super::Problem;
use crate::api::Knative;
use crate::version::Version;

/// The version is exact, `major.minor`, `latest` or empty. Whether the bundle has it is the operator's to say.
pub fn syntax(resource: &Knative) -> Option<Problem> {
    let asked = resource.common().version.as_deref()?;
    (!Version::is_well_formed(asked)).then(|| Problem {
        rule: "version-syntax",
        field: "spec.version".to_owned(),
        message: format!("\"{asked}\" is no version"),
        fix: "set it to one such as 1.22.1, 1.22 or latest, or leave it out for the newest".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::KnativeServing;

    #[test]
    fn only_what_can_be_a_version_passes() {
        for (asked, fine) in [
            ("1.22.1", true),
            ("v1.22.1", true),
            ("1.22", true),
            ("latest", true),
            ("", true),
            ("abc", false),
            ("1", false),
            ("1.x", false),
            ("1.22.1.3", false),
        ] {
            let mut serving = KnativeServing::default();
            serving.spec.common.version = Some(asked.to_owned());
            assert_eq!(syntax(&Knative::Serving(serving)).is_none(), fine, "{asked}");
        }
    }
}
