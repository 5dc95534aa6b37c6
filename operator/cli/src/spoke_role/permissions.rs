//! Sets of permissions, and the rules that grant one.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::rbac::v1::PolicyRule;

/// A verb on a resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Permission {
    group: String,
    /// With the subresource: `deployments/scale`.
    resource: String,
    /// Name of the object; `None` for all objects.
    name: Option<String>,
    verb: String,
}

impl Permission {
    /// Whether `self` includes `other`, by the comparison of the API server (`ruleCovers` in
    /// k8s.io/component-helpers/auth/rbac/validation).
    fn covers(&self, other: &Self) -> bool {
        let matches = |own: &str, other: &str| own == "*" || own == other;
        let subresource = other.resource.split_once('/').map(|(_, subresource)| subresource);
        let has_resource = matches(&self.resource, &other.resource)
            || (subresource.is_some() && self.resource.strip_prefix("*/") == subresource);
        has_resource
            && matches(&self.group, &other.group)
            && matches(&self.verb, &other.verb)
            && (self.name.is_none() || self.name == other.name)
    }
}

/// A set of permissions.
#[derive(Clone, Debug, Default)]
pub struct Permissions {
    on_resources: BTreeSet<Permission>,
    /// Paths that are no resources, each with a verb.
    on_paths: BTreeSet<(String, String)>,
}

impl Permissions {
    /// Adds `verbs` on all objects of `resource`.
    pub fn add(&mut self, group: &str, resource: &str, verbs: &[&str]) {
        self.insert(group, resource, None, verbs);
    }

    /// Adds `verbs` on the objects of `resource` with the name `name`, in all namespaces.
    pub fn add_named(&mut self, group: &str, resource: &str, name: &str, verbs: &[&str]) {
        self.insert(group, resource, Some(name), verbs);
    }

    /// Adds what `rule` permits.
    pub fn add_rule(&mut self, rule: &PolicyRule) {
        let verbs: Vec<&str> = rule.verbs.iter().map(String::as_str).collect();
        let names: Vec<Option<&str>> = match rule.resource_names.as_deref() {
            None | Some([]) => vec![None],
            Some(names) => names.iter().map(|name| Some(name.as_str())).collect(),
        };
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                for name in &names {
                    self.insert(group, resource, *name, &verbs);
                }
            }
        }
        for path in rule.non_resource_urls.iter().flatten() {
            self.on_paths.extend(rule.verbs.iter().map(|verb| (path.clone(), verb.clone())));
        }
    }

    fn insert(&mut self, group: &str, resource: &str, name: Option<&str>, verbs: &[&str]) {
        self.on_resources.extend(verbs.iter().map(|verb| Permission {
            group: group.to_owned(),
            resource: resource.to_owned(),
            name: name.map(str::to_owned),
            verb: (*verb).to_owned(),
        }));
    }

    /// Adds all of `other`.
    pub fn extend(&mut self, other: Self) {
        self.on_resources.extend(other.on_resources);
        self.on_paths.extend(other.on_paths);
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.on_resources.is_empty() && self.on_paths.is_empty()
    }

    /// Those that `given` does not include.
    pub fn without(&self, given: &Self) -> Self {
        let is_given = |one: &Permission| given.on_resources.iter().any(|other| other.covers(one));
        let is_path_given = |path: &str, verb: &str| {
            given.on_paths.iter().any(|(own, verbs)| {
                let has_path = own == path || own.strip_suffix('*').is_some_and(|start| path.starts_with(start));
                has_path && (verbs == "*" || verbs == verb)
            })
        };
        let on_resources = self.on_resources.iter().filter(|one| !is_given(one)).cloned().collect();
        let on_paths = self.on_paths.iter().filter(|(path, verb)| !is_path_given(path, verb)).cloned().collect();
        Self { on_resources, on_paths }
    }

    /// Whether another permission includes `one`.
    fn is_covered(&self, one: &Permission) -> bool {
        self.on_resources.iter().any(|other| other != one && other.covers(one))
    }

    /// Rules that grant exactly these permissions, each of them once, in a fixed order.
    pub fn rules(&self) -> Vec<PolicyRule> {
        let needed = self.on_resources.iter().filter(|one| !self.is_covered(one));
        // Verbs of an object, objects with the same verbs, resources with the same objects and
        // verbs, groups with the same resources: each step joins only what is otherwise equal.
        let by_object = collect(
            needed.map(|one| ((one.group.as_str(), one.resource.as_str(), one.name.as_deref()), one.verb.as_str())),
        );
        let by_resource = collect(
            by_object
                .into_iter()
                .map(|((group, resource, name), verbs)| ((group, resource, name.is_some(), verbs), name)),
        );
        let by_group = collect(
            by_resource.into_iter().map(|((group, resource, _, verbs), names)| ((group, names, verbs), resource)),
        );
        let by_rule =
            collect(by_group.into_iter().map(|((group, names, verbs), resources)| ((resources, names, verbs), group)));
        let mut all: Vec<_> =
            by_rule.into_iter().map(|((resources, names, verbs), groups)| (groups, resources, names, verbs)).collect();
        all.sort();
        let on_resources = all.into_iter().map(|(groups, resources, names, verbs)| PolicyRule {
            api_groups: Some(owned(groups)),
            resources: Some(owned(resources)),
            resource_names: Some(owned(names.into_iter().flatten())).filter(|names| !names.is_empty()),
            verbs: owned(verbs),
            non_resource_urls: None,
        });
        let verbs_of_paths = collect(self.on_paths.iter().map(|(path, verb)| (path.as_str(), verb.as_str())));
        let paths = collect(verbs_of_paths.into_iter().map(|(path, verbs)| (verbs, path)));
        let on_paths = paths.into_iter().map(|(verbs, paths)| PolicyRule {
            non_resource_urls: Some(owned(paths)),
            verbs: owned(verbs),
            ..PolicyRule::default()
        });
        on_resources.chain(on_paths).collect()
    }
}

/// The values of each key.
fn collect<K: Ord, V: Ord>(pairs: impl Iterator<Item = (K, V)>) -> BTreeMap<K, BTreeSet<V>> {
    let mut collected: BTreeMap<K, BTreeSet<V>> = BTreeMap::new();
    for (key, value) in pairs {
        collected.entry(key).or_default().insert(value);
    }
    collected
}

fn owned<'a>(words: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    words.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn rules(given: &Value) -> Value {
        let mut permissions = Permissions::default();
        for rule in given.as_array().unwrap() {
            permissions.add_rule(&serde_json::from_value(rule.clone()).unwrap());
        }
        json!(permissions.rules())
    }

    #[test]
    fn what_another_rule_includes_is_dropped() {
        let rule = |group: &str, resource: &str, verbs: &[&str]| json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
        for (given, expected) in [
            (vec![rule("", "pods", &["get"]), rule("", "pods", &["get", "list"])], rule("", "pods", &["get", "list"])),
            (vec![rule("g", "*", &["*"]), rule("g", "xs/status", &["get"])], rule("g", "*", &["*"])),
            (
                vec![rule("*", "*/scale", &["patch"]), rule("g", "xs/scale", &["patch"])],
                rule("*", "*/scale", &["patch"]),
            ),
        ] {
            assert_eq!(rules(&json!(given)), json!([expected]), "{given:?}");
        }
        // Neither includes the other.
        let both = json!([rule("*", "*/scale", &["patch"]), rule("g", "xs", &["patch"])]);
        assert_eq!(rules(&both), both);
    }

    #[test]
    fn named_objects_are_apart_from_all() {
        let named = |names: &[&str], verbs: &[&str]| json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": names, "verbs": verbs});
        let all = json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]});
        let given = json!([named(&["b"], &["get", "list"]), named(&["a"], &["get"]), all, named(&["c"], &["delete"])]);
        assert_eq!(rules(&given), json!([all, named(&["a", "b"], &["get"]), named(&["c"], &["delete"])]));
    }

    #[test]
    fn equal_resources_and_groups_are_joined() {
        let rule = |groups: &[&str], resources: &[&str], verbs: &[&str]| json!({"apiGroups": groups, "resources": resources, "verbs": verbs});
        let given = json!([
            rule(&["b", "a"], &["ys", "xs"], &["get"]),
            rule(&["a"], &["xs"], &["watch"]),
            rule(&["b"], &["xs"], &["watch"]),
            rule(&["c"], &["xs"], &["get"]),
        ]);
        let expected = json!([
            rule(&["a", "b"], &["xs"], &["get", "watch"]),
            rule(&["a", "b"], &["ys"], &["get"]),
            rule(&["c"], &["xs"], &["get"]),
        ]);
        assert_eq!(rules(&given), expected);
    }

    #[test]
    fn what_is_given_is_subtracted() {
        let of = |rules: &Value| {
            let mut permissions = Permissions::default();
            for rule in rules.as_array().unwrap() {
                permissions.add_rule(&serde_json::from_value(rule.clone()).unwrap());
            }
            permissions
        };
        let rule = |resource: &str, names: &[&str], verbs: &[&str]| json!({"apiGroups": [""], "resources": [resource], "resourceNames": names, "verbs": verbs});
        let path = |path: &str| json!({"nonResourceURLs": [path], "verbs": ["get"]});
        let needed = of(&json!([rule("pods", &["a", "b"], &["get"]), rule("secrets", &[], &["list"]), path("/a/b")]));
        let given = of(&json!([rule("pods", &["b"], &["*"]), rule("secrets", &["c"], &["list"]), path("/a/*")]));
        let left = json!([
            {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]},
            rule("pods", &["a"], &["get"]),
        ]);
        let found = json!(needed.without(&given).rules());
        let (found, left) = (found.as_array().unwrap(), left.as_array().unwrap());
        assert!(found.len() == 2 && left.iter().all(|rule| found.contains(rule)), "{found:?}");
        assert!(needed.without(&needed).is_empty() && !needed.is_empty());
        let mut both = given.clone();
        both.extend(needed.clone());
        assert!(needed.without(&both).is_empty());
    }

    #[test]
    fn paths_keep_their_verbs() {
        let given = json!([
            {"nonResourceURLs": ["/b", "/a"], "verbs": ["get"]},
            {"nonResourceURLs": ["/c"], "verbs": ["get", "post"]},
        ]);
        let expected = json!([
            {"nonResourceURLs": ["/a", "/b"], "verbs": ["get"]},
            {"nonResourceURLs": ["/c"], "verbs": ["get", "post"]},
        ]);
        assert_eq!(rules(&given), expected);
    }
}
