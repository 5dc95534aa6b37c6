//! `spec.manifests` and `spec.additionalManifests`.

use super::rule::{Example, Rule, Severity, Violation};
use knative_operator_shared::api::{Knative, ManifestSource};
use knative_operator_shared::version::Version;

/// Sources of manifests.
pub static URL: Rule = Rule {
    id: "manifest-url",
    severity: Severity::Error,
    requirement: "The URL of a manifest is an https URL or a path in the release bundle.",
    valid: Example::serving(r#"{"additionalManifests": [{"URL": "https://example.com/more.yaml"}]}"#),
    invalid: Example::serving(r#"{"additionalManifests": [{"URL": "http://example.com/more.yaml"}]}"#),
};

/// Version of own manifests.
pub static VERSION: Rule = Rule {
    id: "manifest-version",
    severity: Severity::Error,
    requirement: "With `spec.manifests`, `spec.version` is set to the version of the manifests.",
    valid: Example::serving(
        r#"{"version": "1.22.1", "manifests": [{"URL": "https://example.com/v${VERSION}/serving.yaml"}]}"#,
    ),
    invalid: Example::serving(r#"{"manifests": [{"URL": "https://example.com/serving.yaml"}]}"#),
};

/// Minor version of own manifests.
pub static AGREE: Rule = Rule {
    id: "manifest-one-version",
    severity: Severity::Error,
    requirement: "Knative's own releases in `spec.manifests` have the minor version of `spec.version`.",
    valid: Example::serving(
        r#"{"version": "1.22.1", "manifests": [{"URL": "https://github.com/knative/serving/releases/download/knative-v1.22.0/serving-core.yaml"}]}"#,
    ),
    invalid: Example::serving(
        r#"{"version": "1.22.1", "manifests": [{"URL": "https://github.com/knative/serving/releases/download/knative-v1.21.0/serving-core.yaml"}]}"#,
    ),
};

/// Part of the path of Knative's releases, before the version.
const TAG: &str = "/knative-v";

pub fn check(resource: &Knative, violations: &mut Vec<Violation>) {
    let common = resource.common();
    for (field, list) in [("manifests", &common.manifests), ("additionalManifests", &common.additional_manifests)] {
        for (index, ManifestSource { url }) in list.iter().enumerate() {
            let field = format!("spec.{field}[{index}].URL");
            violations.extend(url_error(url).map(|(message, fix)| URL.at(field, message, fix)));
        }
    }
    if common.manifests.is_empty() {
        return;
    }
    let asked = common.version.as_deref().unwrap_or_default();
    if asked.is_empty() {
        violations.push(VERSION.at(
            "spec.version",
            "is not set, and spec.manifests is",
            "set it to the version of the manifests, such as 1.22.1",
        ));
    }
    let Ok(version) = asked.parse::<Version>() else { return };
    for (index, ManifestSource { url }) in common.manifests.iter().enumerate() {
        let tags = url.split(TAG).skip(1).filter_map(|rest| rest.split(['/', ',']).next()?.parse::<Version>().ok());
        for tag in tags.filter(|tag| !tag.same_minor(&version)) {
            violations.push(AGREE.at(
                format!("spec.manifests[{index}].URL"),
                format!("is a release of {tag}, and spec.version is {asked}"),
                "set spec.version to it, or write ${VERSION} in the URL",
            ));
        }
    }
}

/// Why `url` is invalid, and the fix. The messages don't quote it: it may contain a password.
fn url_error(url: &str) -> Option<(String, &'static str)> {
    const FIX: &str = "set it to an https URL or to a path in the release bundle";
    let mut parts = url.split(',').map(str::trim).filter(|part| !part.is_empty()).peekable();
    if parts.peek().is_none() {
        return Some(("is empty".to_owned(), FIX));
    }
    parts.find_map(|part| {
        let Some((scheme, rest)) = part.split_once("://") else {
            return part
                .split('/')
                .any(|step| step == "..")
                .then(|| ("leads out of the release bundle".to_owned(), FIX));
        };
        if !scheme.eq_ignore_ascii_case("https") {
            let fix = "serve the manifest over https, or put it into the release bundle and give its path";
            return Some((format!("scheme {scheme} is not supported"), fix));
        }
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        let name = host.split(':').next().unwrap_or_default();
        let is_url = !rest.contains(char::is_whitespace) && (host.starts_with('[') || !name.is_empty());
        (!is_url).then(|| ("is not a URL".to_owned(), FIX))
    })
}
