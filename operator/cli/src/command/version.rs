//! `knative-operator version`: the versions of the command, and of what runs on a hub.

use std::collections::BTreeMap;
use std::process::ExitCode;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use knative_operator_rules::Catalog;
use knative_operator_runtime::user::{Connection, UserArgs};
use knative_operator_shared::api::Component;
use knative_operator_shared::label::{RELEASES_CONFIG_MAP, RELEASES_KEY};
use kube::{Api, Client};
use serde::Serialize;
use serde_json::json;

use super::list;
use super::output::{self, CommandOutput, Format, finish};
use super::table::{row, table};

/// Namespace of the operator, by default.
const NAMESPACE: &str = "knative-operator";
/// Help of --namespace.
const HELP: &str = "Namespace of the operator. Defaults to knative-operator";
/// Deployment of the operator, and the name of its container.
const OPERATOR: &str = "knative-operator";
/// Deployment of the webhook, and the name of its container.
const WEBHOOK: &str = "operator-webhook";
/// Label with the name and the version of the chart.
const CHART: &str = "helm.sh/chart";
/// Label with the version that the chart installs.
const VERSION: &str = "app.kubernetes.io/version";

/// Version of the command.
const CLIENT: &str = env!("CARGO_PKG_VERSION");
/// Why only the version of the command is printed.
const NO_CLUSTER: &str = "there is no kubeconfig, so this is the version of the command only; for those on a cluster, name its \
     kubeconfig with --kubeconfig or KUBECONFIG; --client prints no warning";

/// Flags of `version`.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("user-namespace", |flag| flag.help(HELP)))]
pub struct VersionArgs {
    #[command(flatten)]
    user: UserArgs,
    /// Prints the version of the command only.
    #[arg(long)]
    client: bool,
    /// Output format.
    #[arg(short, long, value_parser = Format::among(&Format::TEXT_OR_VALUE), default_value = "text")]
    output: Format,
}

/// What runs on a hub.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Server {
    namespace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    operator: Option<Program>,
    #[serde(skip_serializing_if = "Option::is_none")]
    webhook: Option<Program>,
    /// Version of the chart.
    #[serde(skip_serializing_if = "Option::is_none")]
    chart: Option<String>,
    /// The newest version in the operator's release bundle, by component.
    releases: BTreeMap<&'static str, String>,
}

/// A program of a Deployment.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Program {
    /// The tag of its image, or, without a tag, the version in the labels of the Deployment.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    image: String,
}

/// Prints the versions; those of the hub only if there is a cluster.
pub fn run(args: &VersionArgs) -> ExitCode {
    if args.client || !args.user.has_cluster() {
        let warnings = if args.client { Vec::new() } else { vec![NO_CLUSTER.to_owned()] };
        return print(args.output, None, warnings);
    }
    output::run_on(&args.user, |connection| execute(args, connection))
}

async fn execute(args: &VersionArgs, connection: Connection) -> Result<ExitCode, String> {
    let server = read(&connection.client, args.user.namespace().unwrap_or(NAMESPACE)).await?;
    let warnings = warnings(CLIENT, &server);
    Ok(print(args.output, Some(&server), warnings))
}

fn print(format: Format, server: Option<&Server>, warnings: Vec<String>) -> ExitCode {
    let text = if format.is_text() { text(CLIENT, server) } else { document(format, CLIENT, server) };
    finish(Ok(CommandOutput { text, warnings, is_data: !format.is_text() }))
}

fn document(format: Format, client: &str, server: Option<&Server>) -> String {
    let mut value = json!({"client": {"version": client}});
    if let Some(server) = server {
        value["server"] = json!(server);
    }
    format.document(&value)
}

fn text(client: &str, server: Option<&Server>) -> String {
    let mut rows = vec![row(["PART", "VERSION"]), row(["client", client])];
    if let Some(server) = server {
        for (part, program) in [("operator", &server.operator), ("webhook", &server.webhook)] {
            let version = program.as_ref().map(|program| program.version.as_ref().unwrap_or(&program.image));
            rows.extend(version.map(|version| row([part, version])));
        }
        rows.extend(server.chart.iter().map(|chart| row(["chart", chart])));
        rows.extend(server.releases.iter().map(|(name, version)| row([&format!("newest {name}"), version])));
    }
    table(&rows)
}

/// Reads what runs in `namespace`.
async fn read(client: &Client, namespace: &str) -> Result<Server, String> {
    let deployments = Api::<Deployment>::namespaced(client.clone(), namespace);
    let mut server = Server { namespace: namespace.to_owned(), ..Server::default() };
    for (name, program) in [(OPERATOR, &mut server.operator), (WEBHOOK, &mut server.webhook)] {
        let found = deployments.get_opt(name).await.map_err(|error| unreadable(&error, "deployments", name, namespace));
        let Some(found) = found? else { continue };
        *program = program_of(&found, name);
        let chart = label(&found, CHART).and_then(|chart| chart.strip_prefix("knative-operator-"));
        server.chart = server.chart.or_else(|| chart.map(str::to_owned));
    }
    let maps = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    let map = maps.get_opt(RELEASES_CONFIG_MAP).await;
    let map = map.map_err(|error| unreadable(&error, "configmaps", RELEASES_CONFIG_MAP, namespace))?;
    // Until the operator has started for the first time, there is no catalog.
    if let Some(text) = map.and_then(|map| map.data?.remove(RELEASES_KEY)) {
        let catalog: Catalog = serde_json::from_str(&text)
            .map_err(|error| format!("cannot parse ConfigMap {namespace}/{RELEASES_CONFIG_MAP}: {error}"))?;
        server.releases = newest(&catalog);
    }
    Ok(server)
}

fn unreadable(error: &kube::Error, resource: &str, name: &str, namespace: &str) -> String {
    let what = format!("{resource}/{name} in namespace {namespace}");
    format!("cannot read {what}: {}", list::explained(error, "get", &what))
}

fn newest(catalog: &Catalog) -> BTreeMap<&'static str, String> {
    let newest = |component: Component| catalog.versions(component).iter().max().map(ToString::to_string);
    let all = Component::ALL.into_iter();
    all.filter_map(|component| Some((component.canonical(), newest(component)?))).collect()
}

fn label<'a>(deployment: &'a Deployment, name: &str) -> Option<&'a str> {
    deployment.metadata.labels.as_ref()?.get(name).map(String::as_str)
}

/// The program in the container `name` of `deployment`.
fn program_of(deployment: &Deployment, name: &str) -> Option<Program> {
    let containers = &deployment.spec.template.spec.as_ref()?.containers;
    let image = containers.iter().find(|container| container.name == name)?.image.clone()?;
    let version = tag(&image).or_else(|| label(deployment, VERSION)).map(str::to_owned);
    Some(Program { version, image })
}

/// The version in the tag of `image`. An image without the release bundle has the same version.
fn tag(image: &str) -> Option<&str> {
    let name = image.split('@').next()?;
    let (_, tag) = name.rsplit_once(':').filter(|(_, tag)| !tag.contains('/'))?;
    Some(tag.strip_suffix("-slim").unwrap_or(tag))
}

/// Major and minor version of `version`.
fn minor(version: &str) -> Option<(u64, u64)> {
    let mut parts = version.trim_start_matches('v').split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// What does not fit together.
fn warnings(client: &str, server: &Server) -> Vec<String> {
    let Some(operator) = &server.operator else {
        return vec![format!(
            "there is no Deployment {OPERATOR} in namespace {}; name the namespace of the operator with -n",
            server.namespace
        )];
    };
    let mut warnings = Vec::new();
    if server.webhook.is_none() {
        warnings.push(format!(
            "there is no Deployment {WEBHOOK} in namespace {}: nothing validates resources",
            server.namespace
        ));
    }
    // A tag such as "nightly" can't be compared.
    let Some((version, own)) = operator.version.as_ref().and_then(|version| Some((version, minor(version)?))) else {
        return warnings;
    };
    if minor(client).is_some_and(|client| client.0 != own.0 || client.1.abs_diff(own.1) > 1) {
        warnings.push(format!(
            "the command has version {client}, and the operator {version}: use a command that is at most one minor \
             version older or newer than the operator"
        ));
    }
    let webhook = server.webhook.as_ref().and_then(|webhook| webhook.version.as_ref());
    for (part, other) in [("webhook", webhook), ("chart", server.chart.as_ref())] {
        let Some(other) = other.filter(|other| minor(other).is_some_and(|other| other != own)) else { continue };
        warnings.push(format!(
            "the {part} has version {other}, and the operator {version}: upgrade all of them with the chart of one \
             version"
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(version: &str) -> Option<Program> {
        Some(Program { version: Some(version.to_owned()), image: format!("a.io/x:{version}") })
    }

    fn server(operator: &str, webhook: &str, chart: &str) -> Server {
        let (operator, webhook) = (program(operator), program(webhook));
        Server { namespace: "n".to_owned(), operator, webhook, chart: Some(chart.to_owned()), ..Server::default() }
    }

    #[test]
    fn version_is_that_of_the_tag_or_else_of_the_label() {
        let of = |image: &str| {
            let deployment = json!({"metadata": {"labels": {VERSION: "9.9.9"}}, "spec": {"selector": {},
                "template": {"spec": {"containers": [{"name": "sidecar", "image": "a.io/sidecar:1"},
                    {"name": OPERATOR, "image": image}]}}}});
            let program = program_of(&serde_json::from_value(deployment).unwrap(), OPERATOR).unwrap();
            assert_eq!(program.image, image);
            program.version.unwrap()
        };
        for (image, version) in [
            ("a.io/x:0.2.0", "0.2.0"),
            ("a.io:5000/x:0.2.0-slim", "0.2.0"),
            ("a.io/x:0.2.1@sha256:ab", "0.2.1"),
            ("a.io:5000/x@sha256:ab", "9.9.9"),
            ("a.io:5000/x", "9.9.9"),
        ] {
            assert_eq!(of(image), version, "{image}");
        }
    }

    #[test]
    fn versions_that_are_too_far_apart_are_warnings() {
        let of = |client: &str, others: [&str; 3]| {
            let [operator, webhook, chart] = others;
            warnings(client, &server(operator, webhook, chart))
        };
        for (client, others) in [
            ("0.2.0", ["0.2.0"; 3]),
            ("0.2.0", ["0.2.5", "0.2.4", "0.2.0"]),
            ("0.2.0", ["0.3.0"; 3]),
            ("0.3.0", ["v0.2.0", "v0.2.0", "0.2.0"]),
            ("0.2.0", ["nightly", "0.9.0", "0.2.0"]),
        ] {
            assert_eq!(of(client, others), Vec::<String>::new(), "{client} {others:?}");
        }
        for (client, others, expected) in [
            ("0.2.0", ["0.4.0"; 3], "the command has version 0.2.0, and the operator 0.4.0"),
            ("1.0.0", ["0.2.0"; 3], "the command has version 1.0.0, and the operator 0.2.0"),
            ("0.2.0", ["0.2.0", "0.1.0", "0.2.0"], "the webhook has version 0.1.0, and the operator 0.2.0"),
            ("0.2.0", ["0.2.0", "0.2.0", "0.3.0"], "the chart has version 0.3.0, and the operator 0.2.0"),
        ] {
            let found = of(client, others);
            assert!(found.len() == 1 && found[0].starts_with(expected), "{client} {others:?}: {found:?}");
        }
        let none = Server { namespace: "n".to_owned(), ..Server::default() };
        assert!(warnings("0.2.0", &none)[0].starts_with("there is no Deployment knative-operator in namespace n"));
    }

    #[test]
    fn output_has_what_is_known() {
        assert_eq!(text("0.2.0", None), "PART     VERSION\nclient   0.2.0\n");
        let client: serde_json::Value = serde_json::from_str(&document(Format::Json, "0.2.0", None)).unwrap();
        assert_eq!(client, json!({"client": {"version": "0.2.0"}}));
        let mut server = server("0.3.0", "0.3.1", "0.3.2");
        let catalog = json!({"versions": {"KnativeServing": ["1.9.0", "1.10.0"]}, "names": {}});
        server.releases = newest(&serde_json::from_value(catalog).unwrap());
        let expected = "PART                     VERSION\nclient                   0.2.0\noperator                 0.3.0\n\
                        webhook                  0.3.1\nchart                    0.3.2\nnewest knative-serving   1.10.0\n";
        assert_eq!(text("0.2.0", Some(&server)), expected);
        let value: serde_json::Value = serde_json::from_str(&document(Format::Json, "0.2.0", Some(&server))).unwrap();
        assert_eq!(value["server"]["webhook"], json!({"version": "0.3.1", "image": "a.io/x:0.3.1"}));
        assert_eq!(value["server"]["releases"], json!({"knative-serving": "1.10.0"}));
    }
}
