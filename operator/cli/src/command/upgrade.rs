//! `knative-operator upgrade plan`: what an operator with another release bundle does to the
//! installations of a hub.

use std::fmt;
use std::process::ExitCode;

use knative_operator_rules as rules;
use knative_operator_runtime::user::{Connection, Namespaces, UserArgs, namespace_of_hub};
use knative_operator_shared::api::{Component, Knative};
use knative_operator_shared::way::Way;
use kube::Client;
use kube::core::DynamicObject;
use serde_json::json;

use super::list;
use super::output;
use super::release_args::{BUNDLE, HEADING, bundle_path};
use super::table::{row, table};
use super::upgrade_fleets::{self, fleets, is_owned};
use knative_operator_release::Bundle;

/// Flags of `upgrade`.
#[derive(Clone, Debug, clap::Args)]
pub struct UpgradeArgs {
    #[command(subcommand)]
    command: UpgradeCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum UpgradeCommand {
    /// Shows, for each resource of a hub, the installed version of Knative and the one that an
    /// operator with this release bundle installs, and for each fleet the one that it rolls out.
    /// In all namespaces, or that of --namespace. Changes nothing.
    ///
    /// Exit status: 0 all are supported, 1 a version is not, 2 error.
    Plan(PlanArgs),
}

/// Flags of `upgrade plan`.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("user-namespace", namespace_of_hub))]
struct PlanArgs {
    #[command(flatten)]
    user: UserArgs,
    #[command(flatten)]
    namespaces: Namespaces,
    /// Path of the release bundle of the operator to upgrade to, or to roll back to.
    #[arg(long, env = "KO_DATA_PATH", default_value = BUNDLE, value_name = "PATH", help_heading = HEADING,
        value_parser = bundle_path())]
    releases: std::path::PathBuf,
}

/// What an operator does to an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Effect {
    /// It installs these versions one after another.
    Installs(Way),
    /// It changes nothing.
    Stays,
    /// The bundle lacks the installed version, which is kept from the archive.
    Lacking,
    /// The version can't be installed, for this reason.
    Refused(String),
}

impl Effect {
    /// Whether somebody should act first.
    fn is_problem(&self) -> bool {
        matches!(self, Self::Lacking | Self::Refused(_))
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Installs(Way { next, then }) => {
                write!(f, "installs {next}")?;
                then.iter().try_for_each(|version| write!(f, ", then {version}"))
            }
            Self::Stays => f.write_str("stays"),
            Self::Lacking => f.write_str("NOT IN THE BUNDLE: stays; repaired if the operator before archived it"),
            Self::Refused(why) => write!(f, "REFUSED: {why}"),
        }
    }
}

/// Runs the subcommand.
pub fn run(args: &UpgradeArgs) -> ExitCode {
    let UpgradeCommand::Plan(plan) = &args.command;
    output::run_on(&plan.user, |connection| execute(plan, connection))
}

async fn execute(args: &PlanArgs, connection: Connection) -> Result<ExitCode, String> {
    let Connection { client, namespace, .. } = connection;
    let namespace = args.namespaces.only(&namespace).filter(|_| args.user.has_namespace());
    let bundle = Bundle::open(args.releases.clone());
    let mut rows = vec![row(["KIND", "NAMESPACE", "NAME", "SPEC", "INSTALLED", "EFFECT"])];
    let mut problems = 0;
    let (fleets, mut of_fleets) = (fleets(&client, namespace).await?, Vec::new());
    for component in Component::ALL {
        for resource in list(&client, component, namespace).await? {
            let is_of_fleet = fleets.iter().any(|(fleet, _)| is_owned(fleet, &resource));
            let effect = if is_of_fleet { effect_on_child(&bundle, &resource)? } else { effect(&bundle, &resource)? };
            if is_of_fleet {
                of_fleets.push(resource.clone());
            }
            // The fleet changes it.
            if is_of_fleet && effect == Effect::Stays {
                continue;
            }
            problems += usize::from(effect.is_problem());
            let installed = resource.status().and_then(|status| status.version.as_deref()).unwrap_or("-");
            let asked = resource.common().version.as_deref().filter(|asked| !asked.is_empty()).unwrap_or("latest");
            let kind = component.kind();
            rows.push(row([kind, resource.namespace(), resource.name(), asked, installed, &effect.to_string()]));
        }
    }
    for fleet in &fleets {
        let own: Vec<&Knative> = of_fleets.iter().filter(|resource| is_owned(&fleet.0, resource)).collect();
        rows.extend(upgrade_fleets::rows(&bundle, fleet, &own)?);
    }
    output::print(&if rows.len() == 1 { "There are no resources.\n".to_owned() } else { table(&rows) });
    Ok(if problems == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The resources of `component`, in `namespace` or in all.
async fn list(client: &Client, component: Component, namespace: Option<&str>) -> Result<Vec<Knative>, String> {
    let found = list::objects(client, component.into(), namespace).await?;
    let found = found.ok_or_else(|| list::not_installed(component.into()))?;
    let parse = |object: &DynamicObject| {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        rules::parse(component, &json!(object)).map_err(|why| format!("{} {name}: {why}", component.kind()))
    };
    found.iter().map(parse).collect()
}

/// What an operator with `bundle` does to the installation of `resource`.
fn effect(bundle: &Bundle, resource: &Knative) -> Result<Effect, String> {
    let installed = resource.installed_version();
    let available = bundle.versions(resource.component()).map_err(|error| error.to_string())?;
    Ok(match knative_operator_release::select_way(bundle, resource, false) {
        Ok(way) if installed.as_ref() != Some(&way.next) => Effect::Installs(way),
        Ok(way) if available.contains(&way.next) || !resource.common().manifests.is_empty() => Effect::Stays,
        Ok(_) => Effect::Lacking,
        Err(why) => Effect::Refused(why.to_string()),
    })
}

/// What an operator with `bundle` does to the installation of `resource`, which belongs to a fleet:
/// the fleet decides about another version.
fn effect_on_child(bundle: &Bundle, resource: &Knative) -> Result<Effect, String> {
    let available = bundle.versions(resource.component()).map_err(|error| error.to_string())?;
    let installed = resource.installed_version().filter(|_| resource.common().manifests.is_empty());
    Ok(if installed.is_some_and(|installed| !available.contains(&installed)) { Effect::Lacking } else { Effect::Stays })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effect_of_a_bundle_on_installed_versions() {
        let root = tempfile::tempdir().unwrap();
        for version in ["1.21.3", "1.22.1", "1.23.0"] {
            std::fs::create_dir_all(root.path().join("knative-serving").join(version)).unwrap();
        }
        let bundle = Bundle::open(root.path().to_owned());
        let of = |asked: Option<&str>, installed: &str, minors: Option<&str>| {
            let annotations = json!({"operator.knative.dev/minor-versions": minors});
            let object = json!({"metadata": {"name": "a", "namespace": "n", "annotations": annotations},
                "spec": {"version": asked}, "status": {"version": installed}});
            let mut object = object;
            rules::drop_nulls(&mut object);
            let resource = rules::parse(Component::Serving, &object).unwrap();
            let on_child = effect_on_child(&bundle, &resource).unwrap();
            let is_lacking = !["1.21.3", "1.22.1", "1.23.0"].contains(&installed);
            assert_eq!(on_child, if is_lacking { Effect::Lacking } else { Effect::Stays });
            let effect = effect(&bundle, &resource).unwrap();
            (effect.is_problem(), effect.to_string())
        };
        for (asked, installed, is_problem, expected) in [
            (None, "1.22.1", false, "installs 1.23.0"),
            (Some("1.22"), "1.22.0", false, "installs 1.22.1"),
            (Some("1.22.1"), "1.22.1", false, "stays"),
            (Some("1.22"), "1.22.4", true, "NOT IN THE BUNDLE: stays; repaired if the operator before archived it"),
            (None, "1.20.0", true, "REFUSED: not supported to upgrade"),
            (Some("1.22.7"), "1.22.1", true, "REFUSED: the manifests of the target version 1.22.7 are not available"),
        ] {
            let (found, text) = of(asked, installed, None);
            assert!(found == is_problem && text.starts_with(expected), "{asked:?} {installed}: {text}");
        }
        let each = |asked, installed| of(asked, installed, Some("each"));
        let steps = "installs 1.21.3, then 1.22.1, then 1.23.0";
        assert_eq!(each(None, "1.20.0"), (false, steps.to_owned()));
        assert!(each(None, "1.19.0").1.starts_with("REFUSED: the release bundle lacks version 1.20, which is on"));
    }
}
