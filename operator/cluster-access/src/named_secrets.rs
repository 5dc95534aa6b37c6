//! Which Secrets a credential plugin could read because of a ClusterProfile. The program doesn't
//! know which fields of its configuration a plugin reads: `clusterName` is a Secret of the official
//! secretreader, `name` and `namespace` are one of its kubeconfig-secretreader. So every text that
//! can be a name counts, regardless of its field. Pure.

use std::collections::BTreeSet;

use knative_operator_base::syntax;
use serde_json::Value;

use super::profile::Plugin;

/// Maximum number of names: each is a request.
const MAX_NAMES: usize = 16;

/// Names of Secrets in the configuration of a plugin.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct NamedSecrets {
    /// Texts that can be names of Secrets.
    pub names: BTreeSet<String>,
    /// Texts that can be namespaces, besides the program's own.
    pub namespaces: BTreeSet<String>,
}

/// A configuration could name this many Secrets, too many to look at.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "has a configuration that could name {0} Secrets, more than {MAX_NAMES}; shorten its extension in the ClusterProfile"
)]
pub struct TooManyNames(usize);

/// The Secrets that the configuration of `plugin` could name: that part of its input which the
/// author of a ClusterProfile writes.
pub fn named_secrets(plugin: &Plugin) -> Result<NamedSecrets, TooManyNames> {
    let mut named = NamedSecrets::default();
    collect(&plugin.info["spec"]["cluster"]["config"], "", &mut named);
    let count = named.names.len() * (named.namespaces.len() + 1);
    if count > MAX_NAMES {
        return Err(TooManyNames(count));
    }
    Ok(named)
}

fn collect(value: &Value, field: &str, named: &mut NamedSecrets) {
    match value {
        // A plugin could ignore spaces around a name, or more of it.
        Value::String(text) if syntax::subdomain(text.trim()).is_none() => {
            let names = if is_namespace(field) { &mut named.namespaces } else { &mut named.names };
            names.insert(text.trim().to_owned());
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, field, named)),
        Value::Object(fields) => fields.iter().for_each(|(field, value)| collect(value, field, named)),
        _ => {}
    }
}

/// Whether `field` is called `namespace`. Go reads the names of fields in any case.
fn is_namespace(field: &str) -> bool {
    field.to_lowercase().to_uppercase() == "NAMESPACE"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn named(config: &Value) -> Result<NamedSecrets, TooManyNames> {
        named_secrets(&Plugin {
            provider: "p".to_owned(),
            command: "/p".to_owned(),
            args: Vec::new(),
            env: std::collections::BTreeMap::new(),
            api_version: "client.authentication.k8s.io/v1".to_owned(),
            info: json!({"spec": {"cluster": {"server": "https://h", "config": config}}}),
        })
    }

    #[test]
    fn every_text_that_can_be_a_name_counts() {
        for (config, names, namespaces) in [
            (json!({"clusterName": "prod"}), vec!["prod"], vec![]),
            // Go's JSON takes these fields for clusterName, too.
            (json!({"CLUSTERNAME": "prod", "clu\u{17f}terName": "other"}), vec!["other", "prod"], vec![]),
            (json!({"name": "prod", "key": "config", "Namespace": "n"}), vec!["config", "prod"], vec!["n"]),
            (json!({"secretRef": {"names": [" prod ", 7, null]}}), vec!["prod"], vec![]),
            (json!("prod"), vec!["prod"], vec![]),
            // No names of Secrets.
            (json!({"clusterName": "arn:aws:eks:eu-1:1:cluster/prod", "path": "../n/secrets/prod"}), vec![], vec![]),
            (Value::Null, vec![], vec![]),
        ] {
            let found = named(&config).unwrap();
            let text = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>();
            assert_eq!(
                (text(&found.names), text(&found.namespaces)),
                (names.into_iter().map(str::to_owned).collect(), namespaces.into_iter().map(str::to_owned).collect(),),
                "{config}"
            );
        }
        let many: Vec<String> = (0..=MAX_NAMES).map(|number| format!("a{number}")).collect();
        assert_eq!(named(&json!(many)), Err(TooManyNames(17)));
    }
}
