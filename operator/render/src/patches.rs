//! `spec.patches`: patches of rendered objects, in order, after all transforms.

use std::collections::HashSet;

use knative_operator_patch::target::{self, Candidate};
use knative_operator_patch::{Document, PatchError, Patched};
use knative_operator_rules::{Violation, patch_violation};
use knative_operator_shared::api::PatchTarget;
use knative_operator_shared::label::APP_NAME;
use serde_json::Value;

use super::context::Context;
use super::shape;
use knative_operator_objects::{CompactObject, ObjectId};

/// Maximum size by which the patches of a spec may make its objects larger together, in bytes.
const MAX_GROWTH: usize = 16 << 20;

/// Maximum size of the objects that the patches of a spec change, and of what they copy within
/// them, all changes together, in bytes.
const MAX_WORK: usize = 64 << 20;

/// Objects after all patches.
pub struct PatchedObjects {
    /// The objects.
    pub objects: Vec<CompactObject>,
    /// Objects that get no owner reference, because a patch replaced them.
    pub unowned: HashSet<ObjectId>,
    /// Objects without the label that selects a component's objects.
    pub unlabeled: HashSet<ObjectId>,
}

/// Applies the patches of the spec to `objects`.
pub fn apply(objects: Vec<CompactObject>, cx: &Context<'_>) -> Result<PatchedObjects, Violation> {
    let mut patched = PatchedObjects { objects, unowned: HashSet::new(), unlabeled: HashSet::new() };
    let (mut deleted, mut growth, mut work): (Vec<(CompactObject, usize)>, usize, usize) = (Vec::new(), 0, 0);
    for (index, patch) in cx.resource.common().patches.iter().enumerate() {
        let failed = |error: PatchError| patch_violation(index, patch, &error);
        let position = find(&patched.objects, &patch.target, &deleted).map_err(failed)?;
        let document = Document::parse(patch, cx.resource.component()).map_err(failed)?;
        work = work.saturating_add(patched.objects[position].text().len());
        check_work(work).map_err(failed)?;
        let object = patched.objects[position].parse();
        let mut change = |mut object: Value| {
            let content = |reason| failed(PatchError::content(reason));
            shape::check(&mut object, cx)
                .map_err(|why| content(format!("the patch makes the object invalid: {why}")))?;
            let id = ObjectId::of(&object);
            let is_labeled = object["metadata"]["labels"][APP_NAME] == *cx.resource.component().canonical();
            if is_labeled {
                patched.unlabeled.remove(&id)
            } else {
                patched.unlabeled.insert(id)
            };
            let (old, new) = (patched.objects[position].text().len(), CompactObject::new(&object));
            growth = growth.saturating_add(new.text().len().saturating_sub(old));
            if growth > MAX_GROWTH {
                return Err(content("the patches make the objects too large together; set fewer fields".to_owned()));
            }
            patched.objects[position] = new;
            Ok(())
        };
        let patched_object = document.apply(object, &mut work).map_err(failed)?;
        check_work(work).map_err(failed)?;
        match patched_object {
            Patched::Changed(object) => change(object)?,
            Patched::Replaced(object) => {
                let id = ObjectId::of(&object);
                change(object)?;
                patched.unowned.insert(id);
            }
            Patched::Deleted => deleted.push((patched.objects.remove(position), index)),
        }
    }
    Ok(patched)
}

fn check_work(work: usize) -> Result<(), PatchError> {
    let why = "the spec has too many patches of large objects; merge those of one object, and copy less";
    if work > MAX_WORK { Err(PatchError::content(why.to_owned())) } else { Ok(()) }
}

/// Position of the only object that matches `target`.
fn find(
    objects: &[CompactObject],
    target: &PatchTarget,
    deleted: &[(CompactObject, usize)],
) -> Result<usize, PatchError> {
    if let Some(&(_, index)) = deleted.iter().find(|(object, _)| candidate(object).matches(target)) {
        return Err(target::deleted_by(index));
    }
    target::find(target, &objects.iter().map(candidate).collect::<Vec<_>>(), true)
}

fn candidate(object: &CompactObject) -> Candidate<'_> {
    let (id, gvk) = (object.id(), object.gvk());
    Candidate {
        api_version: gvk.api_version().into(),
        kind: &gvk.kind,
        namespace: Some(&id.namespace),
        name: id.name.as_str().into(),
    }
}
