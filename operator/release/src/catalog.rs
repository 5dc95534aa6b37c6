//! The catalog of a bundle: its versions, and the names that a spec may refer to.

use std::collections::BTreeMap;

use knative_operator_rules::{Catalog, GUARD, ReleaseNames};
use knative_operator_shared::api::Component;
use knative_operator_shared::version::Version;

use super::bundle::{Bundle, Objects, ReleaseError, family};

/// The catalog of `bundle`, with what `names` finds in the parts of a release. The newest patch
/// release of each minor version stands for all.
pub fn catalog(
    bundle: &Bundle,
    names: impl Fn(Component, &[(String, Objects)]) -> ReleaseNames,
) -> Result<Catalog, ReleaseError> {
    let mut releases = Catalog::default();
    for component in Component::ALL {
        let mut versions = bundle.versions(component)?;
        versions.sort();
        let newest: BTreeMap<String, &Version> = versions.iter().map(|v| (v.minor(), v)).collect();
        let found = newest
            .into_iter()
            .map(|(minor, version)| Ok((minor, names(component, &parts(bundle, component, version)?))))
            .collect::<Result<_, ReleaseError>>()?;
        releases.names.insert(component.kind().to_owned(), found);
        releases.versions.insert(component.kind().to_owned(), versions);
    }
    Ok(releases)
}

/// The parts of `version` of `component` by their names: itself, whose name is empty, and its
/// ingresses or sources.
fn parts(bundle: &Bundle, component: Component, version: &Version) -> Result<Vec<(String, Objects)>, ReleaseError> {
    let family = family(component);
    let extras = bundle.extras(family).into_iter().filter(|(v, _)| v.same_minor(version)).flat_map(|(_, names)| names);
    let mut directories = vec![(String::new(), bundle.release(component, version))];
    directories.extend(extras.map(|name| (name.clone(), bundle.extra(family, version, &name))));
    if component == Component::Serving {
        let guard = bundle.newest_guard().map(|guard| bundle.root().join(GUARD).join(guard));
        directories.extend(guard.ok().map(|directory| (GUARD.to_owned(), directory)));
    }
    directories.into_iter().map(|(part, directory)| Ok((part, bundle.objects(&directory)?))).collect()
}
