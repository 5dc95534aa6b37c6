//! `spec.patches`: each patch is valid, and its target exists.

use std::borrow::Cow;

use super::context::{GUARD, RuleContext, VERSION_PLACEHOLDER};
use super::rule::{Example, Rule, Severity, Violation};
use knative_operator_patch::target::{self, Candidate};
use knative_operator_patch::{Document, PatchError};
use knative_operator_shared::api::{Knative, ResourcePatch};

/// The content of a patch is valid.
pub static CONTENT: Rule = Rule {
    id: "patch-invalid",
    severity: Severity::Error,
    requirement: "A patch has the shape of its type, uses directives and merge keys correctly, sets strings where Kubernetes requires them, keeps the identity of its target, and deletes no CustomResourceDefinition, Namespace, or required Deployment.",
    valid: Example::serving(
        r#"{"patches": [{"target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "activator"}, "patch": {"type": "strategic", "content": "spec: {template: {spec: {containers: [{name: activator, tty: true}]}}}"}}]}"#,
    ),
    invalid: Example::serving(
        r#"{"patches": [{"target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "activator"}, "patch": {"type": "strategic", "content": "spec: {template: {spec: {containers: [{tty: true}]}}}"}}]}"#,
    ),
};

/// The target of a patch exists.
pub static TARGET: Rule = Rule {
    id: "patch-target-unknown",
    severity: Severity::Error,
    requirement: "The target of a patch is an object of the version, ingresses and sources that the spec installs, and no earlier patch deletes it.",
    valid: Example::serving(
        r#"{"patches": [{"target": {"apiVersion": "v1", "kind": "Service", "name": "activator-service"}, "patch": {"type": "merge", "content": "metadata: {annotations: {a: b}}"}}]}"#,
    ),
    invalid: Example::serving(
        r#"{"patches": [{"target": {"apiVersion": "v1", "kind": "Service", "name": "activator-servic"}, "patch": {"type": "merge", "content": "metadata: {annotations: {a: b}}"}}]}"#,
    ),
};

/// Maximum number of targets without an object that are compared with all objects, since a spec may
/// have thousands.
const MAX_COMPARED: usize = 20;

/// Checks `spec.patches`.
pub fn check(resource: &Knative, context: &RuleContext<'_>, violations: &mut Vec<Violation>) {
    let patches = &resource.common().patches;
    if patches.is_empty() {
        return;
    }
    let candidates = candidates(resource, context);
    let (mut deleted, mut unknown): (Vec<(Candidate<'_>, usize)>, usize) = (Vec::new(), 0);
    for (index, patch) in patches.iter().enumerate() {
        let mut record = |error: PatchError| violations.push(violation(index, patch, &error));
        let document = Document::parse(patch, resource.component());
        let is_deletion = matches!(document, Ok(Document::Delete));
        if let Err(error) = document.and_then(|document| document.check_content(&patch.target)) {
            record(error);
        }
        let Some(candidates) = &candidates else { continue };
        if let Some(&(_, earlier)) = deleted.iter().find(|(candidate, _)| candidate.matches(&patch.target)) {
            record(target::deleted_by(earlier));
            continue;
        }
        match target::find(&patch.target, candidates, unknown < MAX_COMPARED) {
            Ok(position) if is_deletion => deleted.push((candidates[position].clone(), index)),
            Ok(_) => {}
            Err(error) => {
                unknown += 1;
                record(error);
            }
        }
    }
}

/// The violation for `error` in `patch`, which is `spec.patches[index]`.
pub fn violation(index: usize, patch: &ResourcePatch, error: &PatchError) -> Violation {
    let rule = if error.field == "target" { &TARGET } else { &CONTENT };
    let (message, fix) = error.reason.rsplit_once("; ").unwrap_or((&error.reason, "correct it"));
    rule.at(format!("spec.patches[{index}].{}", error.field), format!("{}: {message}", patch.target), fix)
}

/// The objects that `resource` installs, if its release is known, and if it has no manifests of its
/// own.
fn candidates<'c>(resource: &Knative, context: &RuleContext<'c>) -> Option<Vec<Candidate<'c>>> {
    let (names, version) = (context.names(resource)?, context.version(resource)?.to_string());
    let mut parts = resource.extras();
    parts.push("");
    parts.extend(resource.has_guard().then_some(GUARD));
    let kinds = parts.into_iter().filter_map(|part| names.objects.get(part)).flatten();
    let candidates = kinds.flat_map(|(kind, names)| {
        let (api_version, kind) = kind.rsplit_once(' ').unwrap_or_default();
        let name = |name: &'c String| {
            if name.contains(VERSION_PLACEHOLDER) {
                Cow::Owned(name.replace(VERSION_PLACEHOLDER, &version))
            } else {
                Cow::Borrowed(name.as_str())
            }
        };
        let candidate = |name| Candidate { api_version: api_version.into(), kind, namespace: None, name };
        names.iter().map(name).map(candidate).collect::<Vec<_>>()
    });
    let candidates: Vec<_> = candidates.collect();
    // A catalog of an earlier version of the operator has no objects.
    (!candidates.is_empty()).then_some(candidates)
}
