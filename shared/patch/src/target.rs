//! Finds the object that a patch changes.

use std::borrow::Cow;

use super::PatchError;
use knative_operator_shared::api::PatchTarget;
use knative_operator_shared::text::nearest;

/// An object of an installation.
#[derive(Clone, Debug)]
pub struct Candidate<'a> {
    /// Its API version, such as `apps/v1`.
    pub api_version: Cow<'a, str>,
    /// Its kind.
    pub kind: &'a str,
    /// Its namespace, empty for cluster-scoped kinds; `None` if unknown.
    pub namespace: Option<&'a str>,
    /// Its name.
    pub name: Cow<'a, str>,
}

impl Candidate<'_> {
    /// Whether `target` selects the object.
    pub fn matches(&self, target: &PatchTarget) -> bool {
        let namespace = target.namespace.as_deref().zip(self.namespace);
        self.name == target.name
            && self.kind == target.kind
            && self.api_version == target.api_version
            && namespace.is_none_or(|(wanted, own)| wanted == own)
    }
}

/// Position of the only candidate that matches `target`.
///
/// # Errors
///
/// If none or several match, with the namespaces or, if it `compares` names, with the nearest
/// object. Comparing takes far longer than the rest.
pub fn find(target: &PatchTarget, candidates: &[Candidate<'_>], compares: bool) -> Result<usize, PatchError> {
    let mut matching = candidates.iter().enumerate().filter(|(_, candidate)| candidate.matches(target));
    let Some((position, first)) = matching.next() else {
        return Err(PatchError::target(no_match(target, candidates, compares)));
    };
    let mut namespaces: Vec<&str> =
        matching.filter_map(|(_, other)| other.namespace).filter(|other| first.namespace != Some(other)).collect();
    if namespaces.is_empty() {
        return Ok(position);
    }
    namespaces.extend(first.namespace);
    namespaces.sort_unstable();
    Err(PatchError::target(format!(
        "matches {} objects, in the namespaces {}; set target.namespace to one of them",
        namespaces.len(),
        namespaces.join(", ")
    )))
}

/// Why a patch has no target that `spec.patches[index]` deletes.
pub fn deleted_by(index: usize) -> PatchError {
    PatchError::target(format!("spec.patches[{index}] deletes the object; remove one of the two patches"))
}

/// Why no object matches, with the nearest one if it `compares` names.
fn no_match(target: &PatchTarget, candidates: &[Candidate<'_>], compares: bool) -> String {
    let PatchTarget { api_version, kind, name, .. } = target;
    if name.is_empty() {
        return "has no name; set target.name".to_owned();
    }
    let same: Vec<_> =
        candidates.iter().filter(|candidate| candidate.name == *name && candidate.kind == *kind).collect();
    if let Some(namespace) =
        same.iter().find(|other| other.api_version == *api_version).and_then(|other| other.namespace)
    {
        return format!("matches no object: its namespace is {namespace:?}; correct or remove target.namespace");
    }
    if let Some(other) = same.first() {
        let right = &other.api_version;
        return format!("matches no object: the API version of the {kind} is {right}; set target.apiVersion to it");
    }
    let names = candidates.iter().filter(|candidate| candidate.kind == *kind).map(|candidate| candidate.name.as_ref());
    let mut names = names.peekable();
    if names.peek().is_none() {
        return format!("matches no object: the installation has no {kind}; correct target.kind, or remove the patch");
    }
    let fix = "matches no object of the installation; correct target.name";
    match compares.then(|| nearest(name, names)).flatten() {
        Some(near) => format!("{fix}: the nearest {kind} is {near:?}"),
        None => format!("{fix}, or remove the patch"),
    }
}
