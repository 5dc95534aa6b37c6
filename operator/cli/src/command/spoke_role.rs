//! `knative-operator spoke-role`: prints the smallest ClusterRole for the credential of a spoke.

use std::process::ExitCode;
use std::sync::Arc;

use knative_operator_fleet::template::child_name;
use knative_operator_shared::api::{ClusterProfileReference, Knative};
use knative_operator_shared::version::Version;
use knative_operator_shared::yaml;

use super::files::{File, FileArgs};
use super::images::source::{Source, sources};
use super::output::{self, CommandOutput, finish};
use super::preflight::reference;
use super::read;
use super::release_args::{InputError, ReleaseArgs, knative_version};
use crate::spoke_role::{Covered, cluster_role};
use knative_operator_objects::Owner;
use knative_operator_objects::plan::Plan;
use knative_operator_release::{Bundle, HostPolicy, VersionSelectionError};

/// Flags of `spoke-role`.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("filename", |filename| filename.required(false)))]
pub struct SpokeRoleArgs {
    #[command(flatten)]
    files: FileArgs,
    /// Versions to cover instead of that in each resource, such as 1.22,1.23. An upgrade needs the
    /// old version and the new one.
    #[arg(long, value_name = "VERSION", value_delimiter = ',', value_parser = knative_version)]
    versions: Vec<String>,
    /// Permits gates of fleets: requests to all Services, and Jobs in all namespaces.
    #[arg(long)]
    gates: bool,
    /// Cluster that the role is for, as NAMESPACE/NAME of its ClusterProfile, if the files have
    /// fleets: the names of what a fleet creates depend on it.
    #[arg(long, value_name = "CLUSTER", value_parser = reference, requires = "filename")]
    cluster: Option<ClusterProfileReference>,
    #[command(flatten)]
    releases: ReleaseArgs,
}

/// Prints the ClusterRole as YAML, or the errors.
pub fn run(args: &SpokeRoleArgs) -> ExitCode {
    finish(output::block_on(print_role(args)).unwrap_or_else(Err))
}

async fn print_role(args: &SpokeRoleArgs) -> Result<CommandOutput, String> {
    let (resources, mut warnings) = args.resources()?;
    let library = args.releases.library(HostPolicy::any()).map_err(|error| error.to_string())?;
    let mut covered = Vec::new();
    for resource in &resources {
        for version in args.versions(&library.bundle, resource, &mut warnings)? {
            let rendered = args.releases.render_version(&library, resource, &version).await;
            let (rendered, release) = rendered.map_err(|error| format!("{}: {error}", called(resource)))?;
            warnings.extend(release.warnings.iter().map(|warning| format!("{}: {warning}", called(resource))));
            let plan = Plan::new(Arc::new(rendered), &Owner::of(resource, "")).without_namespaces();
            covered.push(Covered { resource: resource.clone(), version, plan });
        }
    }
    let role = cluster_role(&covered, args.gates).map_err(|error| error.to_string())?;
    warnings.extend(role.warnings);
    let text = yaml::write(&role.object).map_err(|error| error.to_string())?;
    Ok(CommandOutput { text, warnings, is_data: true })
}

impl SpokeRoleArgs {
    /// The resources to cover, all of them as on a spoke, and warnings.
    fn resources(&self) -> Result<(Vec<Knative>, Vec<String>), String> {
        let (mut resources, warnings) = if self.files.is_empty() {
            read::resources(&read::default_resources(), None, false)?
        } else {
            self.of_files()?
        };
        for resource in &mut resources {
            // One for the local cluster has its namespace there; on a spoke, the usual one.
            resource.common_mut().cluster_profile_ref.get_or_insert_default();
        }
        Ok((resources, warnings))
    }

    /// The resources in the files, with those that fleets create, and warnings.
    fn of_files(&self) -> Result<(Vec<Knative>, Vec<String>), String> {
        let (mut resources, mut warnings, mut has_fleet) = (Vec::new(), Vec::new(), false);
        for File { name, text } in self.files.read_all()? {
            let (found, own_warnings) = sources(&text).map_err(|why| format!("{name}: {why}"))?;
            for source in &found {
                has_fleet |= source.fleet().is_some();
                resources.extend(self.of_source(source).map_err(|why| format!("{name}: {why}"))?);
            }
            warnings.extend(own_warnings);
        }
        if resources.is_empty() {
            let names = self.files.names();
            return Err(format!("{names}: there is no KnativeServing, KnativeEventing or KnativeFleet"));
        }
        if self.cluster.is_some() && !has_fleet {
            return Err(format!("{}: --cluster is for KnativeFleets, and there is none", self.files.names()));
        }
        Ok((resources, warnings))
    }

    /// The resource of `source`; of a fleet, what it may create on the cluster.
    fn of_source(&self, source: &Source) -> Result<Vec<Knative>, String> {
        let Some(fleet) = source.fleet() else { return Ok(vec![source.resource()?]) };
        let Some(cluster) = &self.cluster else {
            let fleet = source.fleet_name();
            return Err(format!("{fleet}: name the cluster that the role is for, such as --cluster fleet-system/east"));
        };
        source.created(&child_name(fleet, cluster))
    }

    /// The versions of `resource` to cover. One that the bundle lacks is a warning, if it has
    /// another one: the components don't have the same patch versions.
    fn versions(
        &self,
        bundle: &Bundle,
        resource: &Knative,
        warnings: &mut Vec<String>,
    ) -> Result<Vec<Version>, String> {
        let failed = |error: VersionSelectionError| format!("{}: {}", called(resource), InputError::from(error));
        if self.versions.is_empty() {
            return knative_operator_release::select_version(bundle, resource, false)
                .map(|version| vec![version])
                .map_err(failed);
        }
        let mut versions = Vec::new();
        for asked in &self.versions {
            // Regardless of the version that is installed.
            let mut wanted = resource.clone().with_status(None);
            wanted.common_mut().version = Some(asked.clone());
            match knative_operator_release::select_version(bundle, &wanted, false) {
                Ok(version) => versions.push(version),
                Err(VersionSelectionError::Unavailable(_)) => warnings.push(format!(
                    "{}: version {asked} is not in the release bundle, so the role doesn't cover it",
                    called(resource)
                )),
                Err(error) => return Err(failed(error)),
            }
        }
        if versions.is_empty() {
            let asked = self.versions.join(", ");
            return Err(format!("{}: the release bundle has none of the versions {asked}", called(resource)));
        }
        Ok(versions)
    }
}

/// Kind and name of `resource`.
fn called(resource: &Knative) -> String {
    format!("{} {}", resource.component(), resource.name())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: SpokeRoleArgs,
    }

    fn args(line: &[&str]) -> SpokeRoleArgs {
        let bundle = concat!("--releases=", env!("CARGO_MANIFEST_DIR"), "/../../tests/release");
        Line::try_parse_from([&["x", bundle], line].concat()).unwrap().args
    }

    #[test]
    fn both_kinds_are_covered_on_a_spoke_by_default() {
        let (resources, warnings) = args(&[]).resources().unwrap();
        assert_eq!(
            resources.iter().map(called).collect::<Vec<_>>(),
            ["KnativeServing knative-serving", "KnativeEventing knative-eventing"]
        );
        assert!(resources.iter().all(|resource| resource.common().cluster_profile_ref.is_some()));
        assert_eq!(warnings, Vec::<String>::new());
    }

    #[test]
    fn fleet_is_covered_for_a_cluster() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let fleet = write(
            "fleet.yaml",
            "{apiVersion: operator.knative.dev/v1alpha1, kind: KnativeFleet, metadata: {name: f, namespace: n}, \
             spec: {placement: {clusterSelector: {}}, serving: {spec: {version: '1.0'}}, \
             overrides: [{clusterSelector: {}, serving: {spec: {version: '1.1'}}}]}}",
        );
        let (found, _) = args(&["-f", &fleet, "--cluster=fleet-system/east"]).resources().unwrap();
        let cluster = ClusterProfileReference { name: "east".to_owned(), namespace: "fleet-system".to_owned() };
        let name = child_name("f", &cluster);
        let versions: Vec<_> = found.iter().map(|one| (one.name(), one.common().version.as_deref())).collect();
        assert_eq!(versions, [(name.as_str(), Some("1.0")), (name.as_str(), Some("1.1"))]);
        assert!(found.iter().all(|one| one.common().cluster_profile_ref.is_some()));
        let error = args(&["-f", &fleet]).resources().unwrap_err();
        assert_eq!(
            error,
            format!(
                "{fleet}: KnativeFleet f: name the cluster that the role is for, such as --cluster fleet-system/east"
            )
        );
        let single = write("serving.yaml", &read::default_resources());
        let error = args(&["-f", &single, "--cluster=fleet-system/east"]).resources().unwrap_err();
        assert!(error.ends_with(": --cluster is for KnativeFleets, and there is none"), "{error}");
        assert!(args(&["-f", &single]).resources().is_ok());
        let other = write("other.yaml", "{apiVersion: v1, kind: Namespace, metadata: {name: n}}");
        let error = args(&["-f", &other]).resources().unwrap_err();
        assert!(error.contains("there is no KnativeServing"), "{error}");
    }

    #[test]
    fn versions_are_those_that_the_bundle_has() {
        let versions = |asked: &[&str]| {
            let (args, mut warnings) = (args(asked), Vec::new());
            let (resources, _) = args.resources().unwrap();
            let bundle = Bundle::open(args.releases.releases.clone());
            let found: Result<Vec<_>, _> =
                resources.iter().map(|resource| args.versions(&bundle, resource, &mut warnings)).collect();
            let found = found.map(|all| {
                let texts = |versions: &Vec<Version>| versions.iter().map(ToString::to_string).collect::<Vec<_>>();
                all.iter().map(texts).collect::<Vec<_>>()
            });
            (found, warnings)
        };
        assert_eq!(versions(&[]).0.unwrap(), [["1.1.0"], ["1.1.0"]]);
        let (found, warnings) = versions(&["--versions", "1.0,1.1"]);
        assert_eq!(found.unwrap(), [vec!["1.0.0", "1.1.0"], vec!["1.1.0"]]);
        assert_eq!(
            warnings,
            [
                "KnativeEventing knative-eventing: version 1.0 is not in the release bundle, so the role doesn't cover it"
            ]
        );
        let refused = versions(&["--versions=9.8,9.9"]).0.unwrap_err();
        assert_eq!(refused, "KnativeServing knative-serving: the release bundle has none of the versions 9.8, 9.9");
        let line = Line::try_parse_from(["x", "--versions", "1.0,one"]).unwrap_err().to_string();
        assert!(line.contains("'one'") && line.contains("--versions <VERSION>"), "{line}");
    }
}
