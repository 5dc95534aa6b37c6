//! What the account of a client lacks for an installation.

use futures::StreamExt;
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use k8s_openapi::api::rbac::v1::PolicyRule;
use knative_operator_runtime::{access, error_text};
use kube::Client;

use crate::spoke_role::{self, Covered};

/// Concurrent requests.
const CONCURRENCY: usize = 16;
/// Maximum number of rules, and of names in one, that a message has.
const MAX_RULES: usize = 4;
const MAX_NAMES: usize = 3;
/// Maximum number of permissions that an API server may list: it may be a hostile one.
const MAX_LISTED: usize = 200_000;

/// A namespace that nobody has: only what is permitted in all namespaces is permitted there.
const NOBODYS_NAMESPACE: &str = "knative-operator-preflight-permissions";

/// The permissions in all namespaces that the account of `client` lacks for `covered`. Where the
/// API server can't list what the account may do, it is asked about each.
pub async fn missing(client: &Client, covered: &Covered) -> Result<Vec<PolicyRule>, String> {
    // A role in the namespace of the installation says nothing about cluster-scoped objects, but
    // would be listed there as if it did.
    let rules = access::own_rules(client, NOBODYS_NAMESPACE).await;
    let (given, is_incomplete) =
        rules.map_err(|error| format!("cannot list the own permissions: {}", error_text(&error)))?;
    let listed = given.iter().map(size).fold(0, usize::saturating_add);
    if listed > MAX_LISTED {
        return Err(format!("the API server lists {listed} own permissions, more than {MAX_LISTED}"));
    }
    let missing = spoke_role::missing(std::slice::from_ref(covered), &given);
    let missing = missing.map_err(|error| error.to_string())?;
    if !is_incomplete {
        return Ok(missing);
    }
    let questions = missing.iter().flat_map(single).map(|rule| async move {
        let Some(attributes) = attributes(&rule) else { return Ok(Some(rule)) };
        access::may(client, attributes).await.map(|is_allowed| (!is_allowed).then_some(rule))
    });
    let questions: Vec<_> = questions.collect();
    let answers: Vec<kube::Result<Option<PolicyRule>>> =
        futures::stream::iter(questions).buffered(CONCURRENCY).collect().await;
    let mut refused = Vec::new();
    for answer in answers {
        refused.extend(answer.map_err(|error| format!("cannot ask for a permission: {}", error_text(&error)))?);
    }
    Ok(refused)
}

/// Number of permissions in `rule`.
fn size(rule: &PolicyRule) -> usize {
    let count = |list: Option<&Vec<String>>| list.map_or(0, Vec::len);
    let names = count(rule.resource_names.as_ref()).max(1);
    let on_resources =
        count(rule.api_groups.as_ref()).saturating_mul(count(rule.resources.as_ref())).saturating_mul(names);
    on_resources.saturating_add(count(rule.non_resource_urls.as_ref())).saturating_mul(rule.verbs.len())
}

/// Rules with one verb on one resource each; `rule` itself if it is about paths.
fn single(rule: &PolicyRule) -> Vec<PolicyRule> {
    if rule.non_resource_urls.is_some() {
        return vec![rule.clone()];
    }
    let names: Vec<Option<String>> = match rule.resource_names.as_deref() {
        None | Some([]) => vec![None],
        Some(names) => names.iter().cloned().map(Some).collect(),
    };
    let mut all = Vec::new();
    for group in rule.api_groups.iter().flatten() {
        for resource in rule.resources.iter().flatten() {
            for name in &names {
                all.extend(rule.verbs.iter().map(|verb| PolicyRule {
                    api_groups: Some(vec![group.clone()]),
                    resources: Some(vec![resource.clone()]),
                    resource_names: name.clone().map(|name| vec![name]),
                    verbs: vec![verb.clone()],
                    non_resource_urls: None,
                }));
            }
        }
    }
    all
}

/// The question about a rule with one verb on one resource; `None` for paths.
fn attributes(rule: &PolicyRule) -> Option<ResourceAttributes> {
    let first = |all: &Option<Vec<String>>| all.as_ref().and_then(|all| all.first().cloned());
    let resource = first(&rule.resources)?;
    let (resource, subresource) = match resource.split_once('/') {
        Some((resource, subresource)) => (resource.to_owned(), Some(subresource.to_owned())),
        None => (resource, None),
    };
    Some(ResourceAttributes {
        group: first(&rule.api_groups),
        resource: Some(resource),
        subresource,
        name: first(&rule.resource_names),
        verb: rule.verbs.first().cloned(),
        ..ResourceAttributes::default()
    })
}

/// `rules` for people.
pub fn describe(rules: &[PolicyRule]) -> String {
    let shown: Vec<String> = rules.iter().take(MAX_RULES).map(described).collect();
    let more = rules.len().saturating_sub(MAX_RULES);
    let rest = if more == 0 { String::new() } else { format!("; and {more} more") };
    format!("{}{rest}", shown.join("; "))
}

fn described(rule: &PolicyRule) -> String {
    let verbs = rule.verbs.join(", ");
    if let Some(paths) = &rule.non_resource_urls {
        return format!("{verbs} {}", paths.join(", "));
    }
    let mut targets = Vec::new();
    for group in rule.api_groups.iter().flatten() {
        for resource in rule.resources.iter().flatten() {
            targets.push(if group.is_empty() { resource.clone() } else { format!("{resource}.{group}") });
        }
    }
    let names = rule.resource_names.as_deref().unwrap_or_default();
    let named = match names.len() {
        0 => String::new(),
        1..=MAX_NAMES => format!(" ({})", names.join(", ")),
        many => format!(" ({} and {} more)", names[..MAX_NAMES].join(", "), many - MAX_NAMES),
    };
    format!("{verbs} {}{named}", targets.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn rule(value: Value) -> PolicyRule {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn rules_are_described() {
        let rules = [
            rule(json!({"apiGroups": ["", "apps"], "resources": ["a", "b/c"], "verbs": ["get", "patch"]})),
            rule(
                json!({"apiGroups": ["g"], "resources": ["x"], "resourceNames": ["1", "2", "3", "4"], "verbs": ["get"]}),
            ),
            rule(json!({"apiGroups": ["g"], "resources": ["x"], "resourceNames": ["1"], "verbs": ["get"]})),
            rule(json!({"nonResourceURLs": ["/a"], "verbs": ["get"]})),
            rule(json!({"apiGroups": [""], "resources": ["y"], "verbs": ["get"]})),
        ];
        assert_eq!(
            describe(&rules),
            "get, patch a, b/c, a.apps, b/c.apps; get x.g (1, 2, 3 and 1 more); get x.g (1); get /a; and 1 more"
        );
        assert_eq!(describe(&rules[4..]), "get y");
    }

    #[test]
    fn questions_are_about_one_verb_each() {
        let both = rule(
            json!({"apiGroups": ["g"], "resources": ["x", "x/log"], "resourceNames": ["n"], "verbs": ["get", "list"]}),
        );
        let asked: Vec<_> = single(&both).iter().filter_map(attributes).collect();
        assert_eq!(asked.len(), 4);
        let text = |text: &str| Some(text.to_owned());
        assert_eq!((&asked[3].resource, &asked[3].subresource), (&text("x"), &text("log")));
        assert_eq!((&asked[3].verb, &asked[3].name, &asked[3].group), (&text("list"), &text("n"), &text("g")));
        let path = rule(json!({"nonResourceURLs": ["/a"], "verbs": ["get"]}));
        assert_eq!(single(&path), std::slice::from_ref(&path));
        assert!(attributes(&path).is_none());
    }
}
