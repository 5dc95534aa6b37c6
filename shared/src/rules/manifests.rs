//! `spec.manifests` and `spec.additionalManifests`.

use super::{Example, Problem, Rule, Severity};
use crate::api::{Knative, ManifestSource};
use crate::version::Version;

/// Where they come from.
pub static URL: Rule = Rule {
    id: "manifest-url",
    severity: Severity::Error,
    says: "Manifests come by https, or from a path in the release bundle.",
    kept: Example::serving(r#"{"additionalManifests": [{"URL": "https://example.com/more.yaml"}]}"#),
    broken: Example::serving(r#"{"additionalManifests": [{"URL": "http://example.com/more.yaml"}]}"#),
};

/// Manifests of one's own have a version.
pub static VERSION: Rule = Rule {
    id: "manifest-version",
    severity: Severity::Error,
    says: "`spec.manifests` goes with the `spec.version` that it is.",
    kept: Example::serving(
        r#"{"version": "1.22.1", "manifests": [{"URL": "https://example.com/v${VERSION}/serving.yaml"}]}"#,
    ),
    broken: Example::serving(r#"{"manifests": [{"URL": "https://example.com/serving.yaml"}]}"#),
};

/// They are of one version.
pub static AGREE: Rule = Rule {
    id: "manifest-one-version",
    severity: Severity::Error,
    says: "Knative's own releases in `spec.manifests` are of the minor version that `spec.version` names.",
    kept: Example::serving(
        r#"{"version": "1.22.1", "manifests": [{"URL": "https://github.com/knative/serving/releases/download/knative-v1.22.0/serving-core.yaml"}]}"#,
    ),
    broken: Example::serving(
        r#"{"version": "1.22.1", "manifests": [{"URL": "https://github.com/knative/serving/releases/download/knative-v1.21.0/serving-core.yaml"}]}"#,
    ),
};

/// How Knative tags its releases.
const TAG: &str = "/knative-v";

pub fn check(resource: &Knative, found: &mut Vec<Problem>) {
    let common = resource.common();
    for (field, list) in [("manifests", &common.manifests), ("additionalManifests", &common.additional_manifests)] {
        for (index, ManifestSource { url }) in list.iter().enumerate() {
            let field = format!("spec.{field}[{index}].URL");
            found.extend(fault(url).map(|(message, fix)| URL.at(field, message, fix)));
        }
    }
    if common.manifests.is_empty() {
        return;
    }
    let asked = common.version.as_deref().unwrap_or_default();
    if asked.is_empty() {
        found.push(VERSION.at(
            "spec.version",
            "is not set, and spec.manifests is",
            "set it to the version of the manifests, such as 1.22.1",
        ));
    }
    let Ok(version) = asked.parse::<Version>() else { return };
    for (index, ManifestSource { url }) in common.manifests.iter().enumerate() {
        let tags = url.split(TAG).skip(1).filter_map(|rest| rest.split(['/', ',']).next()?.parse::<Version>().ok());
        for tag in tags.filter(|tag| !tag.same_minor(&version)) {
            found.push(AGREE.at(
                format!("spec.manifests[{index}].URL"),
                format!("is a release of {tag}, and spec.version is {asked}"),
                "set spec.version to it, or write ${VERSION} in the URL",
            ));
        }
    }
}

/// What is wrong with `url`, and what to do. The text is not repeated: it may hold a password.
fn fault(url: &str) -> Option<(String, &'static str)> {
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
        let fine = !rest.contains(char::is_whitespace) && (host.starts_with('[') || !name.is_empty());
        (!fine).then(|| ("is no URL".to_owned(), FIX))
    })
}
