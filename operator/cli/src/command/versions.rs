//! `knative-operator versions`: lists the versions in the bundle.

use std::collections::BTreeMap;
use std::process::ExitCode;

use knative_operator_shared::api::Component;
use knative_operator_shared::version::Version;
use serde_json::json;

use super::output::{CommandOutput, Format, finish};
use super::release_args::{BUNDLE, HEADING, bundle_path};
use super::table::{row, table};
use knative_operator_release::{Bundle, ReleaseError};

/// Flags of `versions`.
#[derive(Clone, Debug, clap::Args)]
pub struct VersionsArgs {
    /// Path of the release bundle. If the default doesn't exist, it is the folder bundle beside the
    /// command.
    #[arg(long, env = "KO_DATA_PATH", default_value = BUNDLE, value_name = "PATH", help_heading = HEADING,
        value_parser = bundle_path())]
    releases: std::path::PathBuf,
    /// Output format.
    #[arg(short, long, value_parser = Format::among(&Format::TEXT_OR_VALUE), default_value = "text")]
    output: Format,
}

/// Lists the versions of each component, oldest first, and the minor versions of each extra.
pub fn run(args: VersionsArgs) -> ExitCode {
    finish(list(&Bundle::open(args.releases), args.output).map_err(|e| e.to_string()).map(|text| CommandOutput {
        text,
        warnings: Vec::new(),
        is_data: !args.output.is_text(),
    }))
}

fn list(bundle: &Bundle, format: Format) -> Result<String, ReleaseError> {
    let mut rows = vec![row(["NAME", "VERSIONS"])];
    let mut all = json!({});
    let mut add = |name: String, versions: &[Version]| {
        let versions: Vec<_> = versions.iter().map(ToString::to_string).collect();
        rows.push(row([&name, &versions.join(" ")]));
        all[name] = json!(versions);
    };
    for component in Component::ALL {
        let mut versions = bundle.versions(component)?;
        versions.sort();
        add(component.canonical().to_owned(), &versions);
    }
    for family in ["ingress", "eventing-source"] {
        let mut by_name: BTreeMap<String, Vec<Version>> = BTreeMap::new();
        for (version, names) in bundle.extras(family) {
            names.into_iter().for_each(|name| by_name.entry(name).or_default().push(version.clone()));
        }
        by_name.into_iter().for_each(|(name, versions)| add(format!("{family}/{name}"), &versions));
    }
    let guards: Vec<_> = bundle.extras("security-guard").into_keys().collect();
    if !guards.is_empty() {
        add("security-guard".to_owned(), &guards);
    }
    Ok(if format.is_text() { table(&rows) } else { format.document(&all) })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

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
        let expected = "NAME               VERSIONS\nknative-serving    1.9.0 1.10.0\nknative-eventing   1.9.0\ningress/kourier    1.9\nsecurity-guard     0.6\n";
        assert_eq!(list(&bundle, Format::Text).unwrap(), expected);
        let json: Value = serde_json::from_str(&list(&bundle, Format::Json).unwrap()).unwrap();
        assert_eq!(
            (&json["knative-serving"], &json["ingress/kourier"]),
            (&json!(["1.9.0", "1.10.0"]), &json!(["1.9"]))
        );
        let missing = Bundle::open(root.path().join("nothing"));
        assert!(
            list(&missing, Format::Text).unwrap_err().to_string().contains("--releases must name a release bundle")
        );
    }
}
