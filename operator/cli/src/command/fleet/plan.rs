//! `knative-operator fleet plan`.

use std::collections::HashMap;
use std::fmt::Write;
use std::process::ExitCode;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use knative_operator_rules as rules;
use knative_operator_rules::{Catalog, FleetContext, Violation};
use knative_operator_runtime::error_text;
use knative_operator_runtime::inventory::InventoryKind;
use knative_operator_shared::api::fleet::RemovalPolicy;
use knative_operator_shared::api::{ClusterProfile, ClusterProfileReference, Component, Knative, KnativeFleet};
use knative_operator_shared::fleet::deletion;
use knative_operator_shared::fleet::placement::{UnknownProperties, decided, selected};
use knative_operator_shared::fleet::selector::Traits;
use knative_operator_shared::label::{CONFIRM_REMOVAL, RELEASES_CONFIG_MAP, RELEASES_KEY};
use knative_operator_shared::text::one_line;
use kube::{Api, Client};
use serde_json::{Value, json};

use super::{Hub, update_revision};
use crate::command::files::{File, FileArgs};
use crate::command::list;
use crate::command::read::{self, FleetDocument};
use crate::command::table::{row, table};
use knative_operator_fleet::plan::{Change, PlannedChange, Stored, meanings, plan};
use knative_operator_fleet::plan_steps::{self, PlannedRemoval, PlannedStage};
use knative_operator_fleet::revision::RevisionData;
use knative_operator_fleet::versions::{Meaning, are_stopped};

/// Maximum number of fields in a row.
const MAX_FIELDS: usize = 3;

/// Flags of `fleet plan`.
#[derive(Clone, Debug, clap::Args)]
pub struct PlanArgs {
    #[command(flatten)]
    files: FileArgs,
    /// Namespace of the operator, whose ConfigMap knative-operator-releases has the versions that
    /// it can install.
    #[arg(long, value_name = "NAME", default_value = "knative-operator")]
    operator_namespace: String,
}

impl PlanArgs {
    /// The fleets in the files.
    fn fleets(&self) -> Result<Vec<FleetDocument>, String> {
        let mut fleets = Vec::new();
        for File { name, text } in self.files.read_all()? {
            fleets.extend(read::fleets(&text).map_err(|why| format!("{name}: {why}"))?);
        }
        if fleets.is_empty() {
            return Err(format!("{}: there is no KnativeFleet", self.files.names()));
        }
        Ok(fleets)
    }
}

/// Prints what each fleet in the files would change.
pub async fn run(hub: &Hub, args: &PlanArgs) -> Result<ExitCode, String> {
    let fleets = args.fleets()?;
    let profiles = profiles(&hub.client).await?;
    let resources = resources(&hub.client).await?;
    let (mut text, mut values, mut is_refused) = (String::new(), Vec::new(), false);
    let catalog = catalog(hub, &args.operator_namespace).await;
    if let Err(why) = &catalog {
        // Writing to a String can't fail.
        let why = one_line(why);
        let _ = writeln!(text, "warning: the versions that the operator can install are not known: {why}");
    }
    let catalog = catalog.ok();
    let of = |component| catalog.as_ref().map(|catalog| (component, catalog.versions(component).to_vec()));
    let available: Vec<_> = Component::ALL.into_iter().filter_map(of).collect();
    for (what, fleet) in fleets {
        let mut fleet = fleet.map_err(|violation| format!("{what}: {violation}"))?;
        fleet.metadata.namespace.get_or_insert_with(|| hub.namespace.clone());
        let violations = violations(&fleet, catalog.as_ref(), &profiles);
        for violation in &violations {
            let severity = if violation.is_error() { "error" } else { "warning" };
            let _ = writeln!(text, "{severity}: {}", one_line(&violation.to_string()));
        }
        is_refused |= violations.iter().any(Violation::is_error);
        let mut texts: Vec<String> = violations.iter().map(Violation::to_string).collect();
        let (changes, versions, stages, removal) = if violations.iter().any(Violation::is_error) {
            (Vec::new(), Vec::new(), Vec::new(), None)
        } else {
            let clusters = clusters(&hub.client, &fleet, &profiles).await?;
            let (before, revision) = before(hub, &fleet).await?;
            let status = before.as_ref().and_then(|before| before.status.clone()).unwrap_or_default();
            let keeps_installed = catalog.as_ref().and_then(|catalog| catalog.keeps_installed).unwrap_or_default();
            let stored = Stored {
                profiles: &profiles,
                resources: &resources,
                before: revision.as_ref(),
                available: &available,
                keeps_installed: keeps_installed || are_stopped(&fleet.spec, &status),
            };
            let changes = plan(&fleet, &clusters, &stored).map_err(|error| error.to_string())?;
            let versions = meanings(&fleet, &clusters, &stored);
            for drop in before.iter().flat_map(|before| unconfirmed_drops(&fleet, before)) {
                is_refused = true;
                let _ = writeln!(text, "error: {}", one_line(&drop));
                texts.push(drop);
            }
            let now = Timestamp::now();
            let removal =
                plan_steps::removal(&fleet, &clusters, &resources, (&status, now), |cluster| profiles.get(cluster));
            let stages = plan_steps::stages(&fleet, &changes, &status).map_err(|error| error.to_string())?;
            (changes, versions, stages, removal)
        };
        text += &describe(&changes);
        text += &describe_versions(&versions, catalog.is_some());
        text += &describe_stages(&stages);
        let fleet_name = fleet.metadata.name.as_deref().unwrap_or_default();
        text.extend(removal.iter().map(|removal| describe_removal(removal, &fleet)));
        let name = format!("{}/{}", fleet.metadata.namespace.as_deref().unwrap_or_default(), fleet_name);
        values.push(
            json!({"fleet": name, "violations": texts, "changes": changes, "versions": catalog.as_ref().map(|_| versions),
                "stages": stages, "removal": removal}),
        );
    }
    hub.print(&text, &json!(values));
    Ok(if is_refused { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

fn describe(changes: &[PlannedChange]) -> String {
    let mut rows = vec![row(["STAGE", "CLUSTER", "KIND", "CHANGE", "DETAILS"])];
    for change in changes {
        let more = change.fields.len().saturating_sub(MAX_FIELDS);
        let created = change.version.as_ref().filter(|_| change.change == Change::Create);
        let mut details: Vec<String> = created.iter().map(|version| format!("version {version}")).collect();
        // The version comes first.
        let (version, others): (Vec<_>, Vec<_>) =
            change.fields.iter().partition(|field| field.starts_with("spec.version:"));
        details.extend(version.into_iter().chain(others).take(MAX_FIELDS).cloned());
        details.extend((more > 0).then(|| format!("{more} more")));
        details.extend(Some(change.note.clone()).filter(|note| !note.is_empty()));
        let word = word(change.change);
        let stage = match change.change {
            Change::Keep => "-",
            _ if change.stage.is_empty() => "(leaves)",
            _ => &change.stage,
        };
        rows.push(row([stage, &change.cluster, change.kind, word, &details.join("; ")]));
    }
    let count = |is: Change| changes.iter().filter(|change| change.change == is).count();
    let counts =
        [Change::Create, Change::Update, Change::Adopt, Change::Delete, Change::Orphan, Change::Conflict, Change::Keep];
    let counts = counts.map(|change| (count(change), word(change)));
    let parts: Vec<String> =
        counts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
    let summary = if parts.is_empty() { "no change".to_owned() } else { parts.join(", ") };
    format!("{}{summary}, {} unchanged\n", table(&rows), count(Change::None))
}

/// What the versions without a patch number mean. `is_known`: whether it is known what they mean to
/// the operator.
fn describe_versions(versions: &[Meaning], is_known: bool) -> String {
    if versions.is_empty() {
        return String::new();
    }
    let mut rows = vec![row(["KIND", "VERSION", "NOW", "ROLLS OUT"])];
    for Meaning { kind, asked, before, after } in versions {
        let before = before.as_deref().unwrap_or("-");
        let after = if is_known { after.as_deref().unwrap_or("-") } else { "(not known)" };
        rows.push(row([kind, asked, before, after]));
    }
    format!("\n{}", table(&rows))
}

/// The stages in which something changes.
fn describe_stages(stages: &[PlannedStage]) -> String {
    if stages.is_empty() {
        return String::new();
    }
    let mut rows =
        vec![row(["STAGE", "CHANGES", "AT A TIME", "MAY FAIL", "APPROVAL", "GATES", "AT LEAST", "LAST TIME"])];
    let time = |seconds: i64| format!("{:#}", SignedDuration::from_secs(seconds));
    for stage in stages {
        let gates = if stage.gates.is_empty() { "-".to_owned() } else { stage.gates.join(", ") };
        rows.push(row([
            &stage.name,
            &format!("{} of {}", stage.changes, stage.clusters),
            &stage.max_concurrent.to_string(),
            &stage.max_failures.to_string(),
            if stage.needs_approval { "required" } else { "-" },
            &gates,
            &time(stage.at_least_seconds),
            &stage.last_seconds.map_or_else(|| "-".to_owned(), time),
        ]));
    }
    let sum = stages.iter().map(|stage| stage.at_least_seconds).fold(0, i64::saturating_add);
    format!("\n{}at least {} in all, without the installations and the waits for approvals\n", table(&rows), time(sum))
}

/// What becomes of clusters that leave `fleet`.
fn describe_removal(removal: &PlannedRemoval, fleet: &KnativeFleet) -> String {
    let PlannedRemoval { clusters, protected, unavailable, installed, grace_period_seconds, .. } = removal;
    let (name, namespace) = (fleet.metadata.name.as_deref(), fleet.metadata.namespace.as_deref());
    let (name, namespace) = (name.unwrap_or_default(), namespace.unwrap_or_default());
    let is_removed = match fleet.spec.removal.policy {
        RemovalPolicy::Delete => "is uninstalled",
        RemovalPolicy::Orphan => "is left without its fleet",
    };
    let what = match removal.blocked_by_limit {
        _ if fleet.spec.rollout.paused => "while the fleet is paused, they stay".to_owned(),
        None => format!("each {is_removed} {grace_period_seconds} s after it left"),
        Some(limit) => format!(
            "removal.maxAtOnce allows {limit} within 24 hours. After you apply this, none {is_removed} until: \
             knative-operator fleet approve {name} -n {namespace} --removal"
        ),
    };
    let kept = match protected {
        0 => String::new(),
        _ => format!("; those whose resources are protected from deletion stay: {protected}"),
    };
    let waiting = match unavailable {
        0 => String::new(),
        _ => format!(
            "; those that are not healthy or not reachable stay until {grace_period_seconds} s after they are: {unavailable}"
        ),
    };
    format!("\n{clusters} of {installed} clusters leave the fleet; {what}{kept}{waiting}\n")
}

/// Why the webhook refuses `fleet` in the place of `before`: it lacks the template of a component,
/// and nobody confirmed that.
fn unconfirmed_drops(fleet: &KnativeFleet, before: &KnativeFleet) -> Vec<String> {
    let set = before.metadata.annotations.as_ref().and_then(|all| all.get(CONFIRM_REMOVAL)).map(String::as_str);
    let clusters = deletion::installed(&json!(before.status));
    let refused = before.spec.dropped_by(&fleet.spec).filter_map(|component| {
        let (message, fix) =
            deletion::unconfirmed_drop(&fleet.metadata, (&before.spec.removal, set), component, clusters)?;
        Some(format!("spec.{}: {message}; {fix}", deletion::field(component)))
    });
    refused.collect()
}

fn word(change: Change) -> &'static str {
    match change {
        Change::Create => "create",
        Change::Update => "update",
        Change::Adopt => "adopt",
        Change::None => "none",
        Change::Conflict => "conflict",
        Change::Keep => "keep",
        Change::Delete => "delete",
        Change::Orphan => "orphan",
    }
}

/// The stored fleet called like `fleet`, if there is one, and what it rolls out.
async fn before(hub: &Hub, fleet: &KnativeFleet) -> Result<(Option<KnativeFleet>, Option<RevisionData>), String> {
    let (namespace, name) = (fleet.metadata.namespace.as_deref(), fleet.metadata.name.as_deref().unwrap_or_default());
    let fleets = Api::<KnativeFleet>::namespaced(hub.client.clone(), namespace.unwrap_or(&hub.namespace));
    match fleets.get_opt(name).await.map_err(|error| error_text(&error))? {
        Some(stored) => {
            let revision = update_revision(&hub.client, &stored).await?;
            Ok((Some(stored), revision))
        }
        None => Ok((None, None)),
    }
}

/// The catalog of the operator in `namespace`, or why it is not known.
async fn catalog(hub: &Hub, namespace: &str) -> Result<Catalog, String> {
    let what = format!("ConfigMap {namespace}/{RELEASES_CONFIG_MAP}");
    let maps = Api::<ConfigMap>::namespaced(hub.client.clone(), namespace);
    let map = maps.get_opt(RELEASES_CONFIG_MAP).await.map_err(|error| {
        let why = list::explained(&error, "get", &format!("configmaps/{RELEASES_CONFIG_MAP} in namespace {namespace}"));
        format!("cannot read {what}: {why}")
    })?;
    let missing = || format!("{what} does not exist; set --operator-namespace to the namespace of the operator");
    let data = map.ok_or_else(missing)?.data.unwrap_or_default();
    let text = data.get(RELEASES_KEY).ok_or_else(|| format!("the operator has not published it in {what} yet"))?;
    let catalog: Catalog = serde_json::from_str(text).map_err(|error| format!("cannot parse {what}: {error}"))?;
    if catalog.keeps_installed.is_none() {
        return Err(format!("an earlier version of the operator wrote {what}, which doesn't say what stays installed"));
    }
    Ok(catalog)
}

fn violations(
    fleet: &KnativeFleet,
    catalog: Option<&Catalog>,
    profiles: &HashMap<ClusterProfileReference, ClusterProfile>,
) -> Vec<Violation> {
    let traits: Vec<(ClusterProfileReference, Traits<'static>)> = profiles
        .iter()
        .map(|(reference, profile)| (reference.clone(), Traits::of(Some(profile)).into_owned()))
        .collect();
    rules::validate_fleet(fleet, &FleetContext { catalog, profiles: Some(&traits) })
}

/// The ClusterProfiles of `hub`.
pub async fn profiles(hub: &Client) -> Result<HashMap<ClusterProfileReference, ClusterProfile>, String> {
    let all = InventoryKind::ClusterProfile.list(hub, None).await;
    let all = all.map_err(|error| format!("cannot list ClusterProfiles: {}", error_text(&error)))?;
    Ok(all.iter().map(ClusterProfile::read).map(|profile| (profile.reference(), profile)).collect())
}

/// The KnativeServings and KnativeEventings of `hub` that this version can read.
pub async fn resources(hub: &Client) -> Result<Vec<Knative>, String> {
    let mut resources = Vec::new();
    for component in Component::ALL {
        let all = list::objects(hub, component.into(), None).await?.unwrap_or_default();
        resources.extend(all.into_iter().filter_map(|object| rules::parse(component, &json!(object)).ok()));
    }
    Ok(resources)
}

/// The clusters that `fleet` of `hub` selects, if the operator knows what to install on each.
pub async fn clusters(
    hub: &Client,
    fleet: &KnativeFleet,
    profiles: &HashMap<ClusterProfileReference, ClusterProfile>,
) -> Result<Vec<ClusterProfileReference>, String> {
    let namespace = fleet.metadata.namespace.as_deref().unwrap_or_default();
    let clusters = if let Some(decision) = &fleet.spec.placement.decision {
        let of = decision.namespace.as_deref().unwrap_or(namespace);
        let slices = InventoryKind::PlacementDecision.list(hub, Some(of)).await;
        let slices = slices.map_err(|error| format!("cannot list PlacementDecisions: {}", error_text(&error)))?;
        let slices: Vec<Value> = slices.into_iter().map(|slice| json!(slice)).collect();
        decided(decision, of, slices.iter()).map_err(|error| error.to_string())?
    } else {
        let all = profiles.iter().map(|(reference, profile)| (reference, Traits::of(Some(profile))));
        selected(&fleet.spec.placement, namespace, all).map_err(|error| format!("spec.placement.{error}"))?
    };
    let traits = clusters.iter().filter_map(|cluster| Some((cluster, Traits::of(Some(profiles.get(cluster)?)))));
    match UnknownProperties::find(&fleet.spec, traits) {
        None => Ok(clusters),
        Some(unknown) => Err(format!("nothing is written for the fleet: {unknown}")),
    }
}
