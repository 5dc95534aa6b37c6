//! `knative-operator versions`: lists the versions in the bundle.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::ExitCode;

use knative_operator_shared::api::Component;
use knative_operator_shared::version::Version;
use serde_json::{Value, json};

use super::output::{CommandOutput, Output, finish};
use super::release_args::BUNDLE;
use knative_operator_release::{Bundle, ReleaseError};
use knative_operator_shared::yaml;

/// Flags of `versions`.
#[derive(Clone, Debug, clap::Args)]
pub struct VersionsArgs {
    /// Path of the release bundle.
    #[arg(long, env = "KO_DATA_PATH", default_value = BUNDLE, value_name = "PATH")]
    releases: std::path::PathBuf,
    /// Output format; a table by default.
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

/// Lists the versions of each component, oldest first, and the extras of each minor version.
pub fn run(args: VersionsArgs) -> ExitCode {
    finish(list(&Bundle::open(args.releases), args.output).map_err(|e| e.to_string()).map(|text| CommandOutput {
        text,
        warnings: Vec::new(),
        is_data: args.output.is_some(),
    }))
}

fn list(bundle: &Bundle, output: Option<Output>) -> Result<String, ReleaseError> {
    let mut components: BTreeMap<&str, Vec<Version>> = BTreeMap::new();
    for component in Component::ALL {
        let mut versions = bundle.versions(component)?;
        versions.sort();
        components.insert(component.canonical(), versions);
    }
    let extras = ["ingress", "eventing-source"].map(|family| (family, bundle.extras(family)));
    let guards: Vec<_> = bundle.extras("security-guard").into_keys().collect();
    let mut all: BTreeMap<&str, Value> =
        components.iter().map(|(name, versions)| (*name, json!(texts(versions)))).collect();
    for (family, extras) in &extras {
        all.insert(family, extras.iter().map(|(version, names)| (version.to_string(), json!(names))).collect());
    }
    all.insert("security-guard", json!(texts(&guards)));
    Ok(match output {
        Some(Output::Json) => format!("{:#}\n", json!(all)),
        // A map of strings always serializes.
        Some(Output::Yaml) => yaml::write(&all).unwrap_or_default(),
        None => table(&components, &extras, &guards),
    })
}

type Extras<'a> = [(&'a str, BTreeMap<Version, Vec<String>>)];

fn table(components: &BTreeMap<&str, Vec<Version>>, extras: &Extras<'_>, guards: &[Version]) -> String {
    let mut rows: Vec<(String, String)> = vec![("NAME".to_owned(), "VERSIONS".to_owned())];
    rows.extend(components.iter().map(|(name, versions)| ((*name).to_owned(), texts(versions).join(" "))));
    for (family, extras) in extras {
        let mut by_name: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (version, names) in extras {
            names.iter().for_each(|name| by_name.entry(name).or_default().push(version.to_string()));
        }
        rows.extend(by_name.into_iter().map(|(name, versions)| (format!("{family}/{name}"), versions.join(" "))));
    }
    if !guards.is_empty() {
        rows.push(("security-guard".to_owned(), texts(guards).join(" ")));
    }
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    let mut text = String::new();
    for (name, versions) in rows {
        let _ = writeln!(text, "{name:width$}   {versions}");
    }
    text
}

fn texts(versions: &[Version]) -> Vec<String> {
    versions.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_lists_components_and_extras() {
        let root = tempfile::tempdir().unwrap();
        for directory in [
            "knative-serving/1.10.0",
            "knative-serving/1.9.0",
            "knative-eventing/1.9.0",
            "ingress/1.9/kourier",
            "security-guard/0.6",
        ] {
            std::fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        let bundle = Bundle::open(root.path().to_owned());
        let expected = "NAME               VERSIONS\nknative-eventing   1.9.0\nknative-serving    1.9.0 1.10.0\ningress/kourier    1.9\nsecurity-guard     0.6\n";
        assert_eq!(list(&bundle, None).unwrap(), expected);
        let json: Value = serde_json::from_str(&list(&bundle, Some(Output::Json)).unwrap()).unwrap();
        assert_eq!(json["ingress"], json!({"1.9": ["kourier"]}));
        let missing = Bundle::open(root.path().join("nothing"));
        assert!(list(&missing, None).unwrap_err().to_string().contains("--releases must name a release bundle"));
    }
}
