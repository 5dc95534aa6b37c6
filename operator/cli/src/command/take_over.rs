//! `knative-operator take-over`: moves installations that belong to another owner, such as a hub
//! that was lost, to the resources of this hub.

use std::process::ExitCode;

use knative_operator_runtime::error_text;
use knative_operator_runtime::identity::patch_as;
use knative_operator_runtime::user::{Connection, Namespaces, UserArgs};
use knative_operator_shared::api::{KnativeEventing, KnativeServing};
use knative_operator_shared::label::TAKE_OVER;
use knative_operator_shared::text::one_line;
use kube::api::{ListParams, Patch};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::output::{self, PROGRAM};
use super::terminal::confirmed;

/// Flags of `take-over`.
#[derive(Clone, Debug, clap::Args)]
pub struct TakeOverArgs {
    #[command(flatten)]
    user: UserArgs,
    /// Names of resources. Defaults to all in the namespace.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    namespaces: Namespaces,
    /// Only installations that belong to the hub with this uid.
    #[arg(long, value_name = "UID")]
    hub: Option<String>,
    /// Takes over without asking.
    #[arg(short, long)]
    yes: bool,
}

/// A resource whose installation belongs to another owner.
struct Occupied {
    api: Api<DynamicObject>,
    kind: String,
    namespace: String,
    name: String,
    resource_version: Option<String>,
    /// The message of the operator.
    message: String,
    /// The value of the annotation that the message asks for; `None` if it asks for something else.
    value: Option<String>,
}

/// Takes over. Exit status: 0 done or nothing to do, 1 declined or not possible, 2 error.
pub fn run(args: &TakeOverArgs) -> ExitCode {
    output::run_on(&args.user, |connection| execute(args, connection))
}

async fn execute(args: &TakeOverArgs, connection: Connection) -> Result<ExitCode, String> {
    let Connection { client, namespace, .. } = connection;
    let namespace = args.namespaces.only(&namespace);
    let kinds = [ApiResource::erase::<KnativeServing>(&()), ApiResource::erase::<KnativeEventing>(&())];
    let mut occupied = Vec::new();
    for kind in &kinds {
        occupied.extend(list(&client, kind, namespace).await?);
    }
    occupied.retain(|one| args.names.is_empty() || args.names.contains(&one.name));
    occupied.retain(|one| args.hub.as_ref().is_none_or(|hub| one.belongs_to(hub)));
    if occupied.is_empty() {
        let place = namespace.map_or_else(|| "any namespace".to_owned(), |namespace| format!("namespace {namespace}"));
        output::print(&format!("No installation of the resources in {place} belongs to another owner.\n"));
        return Ok(ExitCode::SUCCESS);
    }
    let (possible, others): (Vec<_>, Vec<_>) = occupied.into_iter().partition(|one| one.value.is_some());
    for one in &others {
        output::print(&format!("{one}\n  This command can't take it over.\n"));
    }
    for one in &possible {
        output::print(&format!("{one}\n"));
    }
    if possible.is_empty() {
        return Ok(ExitCode::FAILURE);
    }
    let what = match possible.len() {
        1 => "this installation".to_owned(),
        number => format!("these {number} installations"),
    };
    output::print(&format!(
        "\nThe resources of this hub become the owners of {what}, and apply their specs. No Pod restarts for the\n\
         change of the owner. The owners before write nothing there any more.\n"
    ));
    if !args.yes && !confirmed(&format!("Take over {what}? [y/N] "))? {
        return Ok(ExitCode::FAILURE);
    }
    let mut failed = Vec::new();
    for one in &possible {
        failed.extend(one.annotate().await.err());
    }
    if !failed.is_empty() {
        return Err(failed.join("\nerror: "));
    }
    Ok(if others.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The resources of `kind` whose installation belongs to another owner.
async fn list(client: &Client, kind: &ApiResource, namespace: Option<&str>) -> Result<Vec<Occupied>, String> {
    let api = |namespace: Option<&str>| match namespace {
        Some(namespace) => Api::<DynamicObject>::namespaced_with(client.clone(), namespace, kind),
        None => Api::all_with(client.clone(), kind),
    };
    let listed = api(namespace).list(&ListParams::default()).await;
    let listed = listed.map_err(|error| format!("cannot list {}: {}", kind.plural, error_text(&error)))?;
    let occupied = listed.items.into_iter().filter_map(|object| {
        let message = occupied(&object.data)?;
        let namespace = object.namespace().unwrap_or_default();
        Some(Occupied {
            api: api(Some(&namespace)),
            kind: kind.kind.clone(),
            value: asked(message),
            message: one_line(message),
            name: object.name_any(),
            resource_version: object.resource_version(),
            namespace,
        })
    });
    Ok(occupied.collect())
}

/// The message of the condition with the reason `Occupied`, if the resource has it.
fn occupied(resource: &Value) -> Option<&str> {
    let conditions = resource["status"]["conditions"].as_array()?;
    let is_occupied =
        |c: &&Value| c["type"] == "InstallSucceeded" && c["status"] == "False" && c["reason"] == "Occupied";
    conditions.iter().find(is_occupied)?["message"].as_str()
}

/// The value of the annotation in the command at the end of `message`.
fn asked(message: &str) -> Option<String> {
    let (_, value) = message.rsplit_once(&format!("{TAKE_OVER}="))?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-:/.".contains(c);
    Some(value.to_owned()).filter(|value| !value.is_empty() && value.chars().all(is_plain))
}

impl Occupied {
    fn belongs_to(&self, hub: &str) -> bool {
        self.value.as_deref().is_some_and(|value| value.split('/').next() == Some(hub))
    }

    /// Annotates the resource, if it has not changed since it was shown.
    async fn annotate(&self) -> Result<(), String> {
        let patch = json!({"metadata": {
            "resourceVersion": self.resource_version,
            "annotations": {TAKE_OVER: self.value},
        }});
        let patched = self.api.patch(&self.name, &patch_as(PROGRAM), &Patch::Merge(patch)).await;
        let id = format!("{} {}/{}", self.kind, self.namespace, self.name);
        patched.map_err(|error| match &error {
            kube::Error::Api(status) if status.code == 409 => {
                format!("{id} has changed meanwhile, and was not annotated; run the command again")
            }
            error => format!("cannot annotate {id}: {}", error_text(error)),
        })?;
        output::print(&format!("{id} annotated\n"));
        Ok(())
    }
}

impl std::fmt::Display for Occupied {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}/{}\n  {}", self.kind, self.namespace, self.name, self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotation_is_that_of_the_message() {
        for (message, expected) in [
            ("… to this hub: kubectl annotate … operator.knative.dev/take-over=1-2", Some("1-2")),
            ("… operator.knative.dev/take-over=1/2026-01-31T12:00:00Z", Some("1/2026-01-31T12:00:00Z")),
            ("… Delete one of the two resources: …", None),
            ("… operator.knative.dev/take-over=", None),
            ("… operator.knative.dev/take-over=x y", None),
        ] {
            let condition = |status: &str| {
                json!({"status": {"conditions": [
                    {"type": "Ready", "status": "False", "reason": "Occupied", "message": "x"},
                    {"type": "InstallSucceeded", "status": status, "reason": "Occupied", "message": message},
                ]}})
            };
            assert_eq!(occupied(&condition("False")).and_then(asked).as_deref(), expected, "{message}");
            assert_eq!(occupied(&condition("True")), None);
        }
        assert_eq!(occupied(&json!({})), None);
    }
}
