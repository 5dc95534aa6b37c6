//! The tree: fleet, stage, cluster, component.

use std::collections::HashMap;
use std::fmt::Write as _;

use jiff::Timestamp;
use knative_operator_shared::condition::DEPENDENTS;
use knative_operator_shared::text::one_line;

use super::line::Style;
use knative_operator_overview::model::EventView;
use knative_operator_overview::{Advice, ClusterView, ComponentView, FleetView, Overview, StageView, State};

/// Number of clusters in one place from which on Ready ones are counted.
const FOLD: usize = 10;
/// Maximum number of clusters in one state that are listed in one place.
const MAX_LISTED: usize = 10;
/// Width of a progress bar, in characters.
const BAR: usize = 20;
/// Number of conditions that `Ready` depends on.
const CONDITIONS: i32 = 5;
/// Maximum age of a repair that is shown, in seconds.
const RECENT: i64 = 24 * 3600;

/// What to print.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether all clusters are listed, with their last repairs.
    pub is_wide: bool,
    /// Time.
    pub now: Timestamp,
}

/// A node of the tree: its line, further lines, and its children.
#[derive(Default)]
struct Node {
    line: String,
    details: Vec<String>,
    children: Vec<Node>,
}

struct Printer<'a> {
    options: &'a Options,
    style: &'a Style,
    clusters: HashMap<&'a str, &'a ClusterView>,
}

/// `overview` as a tree.
pub fn render(overview: &Overview, options: &Options, style: &Style) -> String {
    let clusters = overview.clusters.iter().map(|cluster| (cluster.id.as_str(), cluster)).collect();
    let printer = Printer { options, style, clusters };
    let mut text = style.lines("", "", &summary(overview, style));
    for fleet in &overview.fleets {
        text.push('\n');
        printer.write(&printer.fleet(fleet), &mut text, "", "", false);
    }
    let own: Vec<&ClusterView> = overview.clusters.iter().filter(|cluster| !in_stage(overview, cluster)).collect();
    for node in printer.clusters(&own) {
        text.push('\n');
        printer.write(&node, &mut text, "", "", false);
    }
    for note in &overview.notes {
        text += &style.lines("\nnote: ", "      ", &format!("cannot read {note}"));
    }
    text
}

fn in_stage(overview: &Overview, cluster: &ClusterView) -> bool {
    let mut stages = overview.fleets.iter().flat_map(|fleet| &fleet.stages);
    cluster.fleet.is_some() && stages.any(|stage| stage.clusters.contains(&cluster.id))
}

fn summary(overview: &Overview, style: &Style) -> String {
    let count = overview.clusters.len();
    if count == 0 && overview.fleets.is_empty() {
        return "No KnativeServing, KnativeEventing or KnativeFleet.".to_owned();
    }
    let states = State::WORST_FIRST.iter().rev().filter_map(|state| {
        let count = overview.clusters_by_state.get(state.as_str())?;
        Some(style.state(*state, &format!("{count} {}", state.as_str())))
    });
    let fleets = match overview.fleets.len() {
        0 => String::new(),
        1 => "1 fleet, ".to_owned(),
        more => format!("{more} fleets, "),
    };
    let noun = if count == 1 { "cluster" } else { "clusters" };
    format!("{fleets}{count} {noun}: {}", states.collect::<Vec<_>>().join(", "))
}

impl Printer<'_> {
    fn write(&self, node: &Node, text: &mut String, prefix: &str, indent: &str, is_child: bool) {
        *text += &self.style.lines(prefix, &format!("{indent}  "), &node.line);
        let [branch, last, pipe] =
            if self.style.unicode { ["├── ", "└── ", "│   "] } else { ["|-- ", "`-- ", "|   "] };
        let gap = if node.children.is_empty() || !is_child { "  " } else { pipe };
        for detail in &node.details {
            let indent = format!("{indent}{gap}");
            *text += &self.style.lines(&indent, &format!("{indent}  "), detail);
        }
        for (number, child) in node.children.iter().enumerate() {
            let is_last = number + 1 == node.children.len();
            let (branch, below) = if is_last { (last, "    ") } else { (branch, pipe) };
            self.write(child, text, &format!("{indent}{branch}"), &format!("{indent}{below}"), true);
        }
    }

    fn fleet(&self, fleet: &FleetView) -> Node {
        let state = if fleet.ready { State::Ready } else { fleet_state(fleet) };
        let name = self.style.bold(&format!("{}/{}", fleet.namespace, fleet.name));
        let reason = self.style.state(state, &fleet.reason);
        let line = format!("{} KnativeFleet {name}  {reason}: {}", self.style.symbol(state), one_line(&fleet.message));
        let mut details = Vec::new();
        if let (Some(update), current) = (&fleet.update_revision, &fleet.current_revision)
            && current.as_ref() != Some(update)
        {
            let from = current.as_ref().map(|current| format!(" from {current}")).unwrap_or_default();
            details.push(format!("revision {update}{from}"));
        }
        details.extend(fleet.remedy.iter().flat_map(Advice::lines));
        let children = fleet.stages.iter().map(|stage| self.stage(stage)).collect();
        Node { line, details, children }
    }

    fn stage(&self, stage: &StageView) -> Node {
        let StageView { name, state, total, updated, failed, deferred, .. } = stage;
        let counts = [(failed, "failed"), (deferred, "deferred"), (&stage.updating, "updating")];
        let counts = counts.iter().filter(|(count, _)| **count > 0).map(|(count, what)| format!(", {count} {what}"));
        let time = stage.started_at.as_deref().and_then(|started| {
            let end = stage.finished_at.as_deref().and_then(|end| end.parse().ok()).unwrap_or(self.options.now);
            Some(format!(", {}", age(started.parse().ok()?, end)))
        });
        let line = format!(
            "Stage {}  {state}  {} {updated}/{total} updated{}{}",
            self.style.bold(name),
            bar(*updated, *total, self.style.unicode),
            counts.collect::<String>(),
            time.unwrap_or_default(),
        );
        let clusters: Vec<&ClusterView> =
            stage.clusters.iter().filter_map(|id| self.clusters.get(id.as_str()).copied()).collect();
        Node { line, details: Vec::new(), children: self.clusters(&clusters) }
    }

    /// Nodes of `clusters`: of many, those in good states are counted.
    fn clusters(&self, clusters: &[&ClusterView]) -> Vec<Node> {
        if self.options.is_wide || clusters.len() <= FOLD {
            return clusters.iter().map(|cluster| self.cluster(cluster)).collect();
        }
        let mut nodes = Vec::new();
        for state in State::WORST_FIRST {
            let all: Vec<_> = clusters.iter().filter(|cluster| cluster.state == state).collect();
            let is_counted = matches!(state, State::Ready | State::Pending);
            let listed = if is_counted { 0 } else { all.len().min(MAX_LISTED) };
            nodes.extend(all.iter().take(listed).map(|cluster| self.cluster(cluster)));
            let (rest, more) = (all.len() - listed, if listed > 0 { " more" } else { "" });
            if rest > 0 {
                let noun = if rest == 1 { "cluster" } else { "clusters" };
                let word = self.style.state(state, state.as_str());
                let line = format!("{} {rest}{more} {noun} {word}", self.style.symbol(state));
                nodes.push(Node { line, ..Node::default() });
            }
        }
        nodes
    }

    fn cluster(&self, cluster: &ClusterView) -> Node {
        let state = self.style.state(cluster.state, cluster.state.as_str());
        let mut line = format!("{} {}  {state}", self.style.symbol(cluster.state), self.style.bold(&cluster.id));
        if let (Some(server), true) = (&cluster.server, self.options.is_wide) {
            // Writing to a String can't fail.
            let _ = write!(line, "  {server}");
        }
        let mut details = Vec::new();
        if self.options.is_wide && !cluster.providers.is_empty() {
            let connection = cluster.connection.as_ref().map(|connection| {
                let since = connection.since.as_deref().map(|since| self.since(since)).unwrap_or_default();
                match connection.connected {
                    Some(true) => format!(", connected{since}"),
                    Some(false) => format!(", not connected{since}"),
                    None => String::new(),
                }
            });
            details.push(format!("credentials of {}{}", cluster.providers.join(", "), connection.unwrap_or_default()));
        }
        if self.options.is_wide && !cluster.properties.is_empty() {
            let all = cluster.properties.iter().map(|(name, value)| format!("{name}={}", one_line(value)));
            details.push(format!("properties: {}", all.collect::<Vec<_>>().join(", ")));
        }
        let children: Vec<Node> = cluster.components.iter().map(|component| self.component(component)).collect();
        if children.is_empty() {
            details.push("no resource yet".to_owned());
        }
        Node { line, details, children }
    }

    fn component(&self, component: &ComponentView) -> Node {
        let ComponentView { kind, namespace, name, state, version, target_version, since, problem, .. } = component;
        let version = match (version, target_version) {
            (Some(version), Some(target)) => format!("{version} -> {target}"),
            (Some(version), None) | (None, Some(version)) => version.clone(),
            (None, None) => "(no version yet)".to_owned(),
        };
        let since = since.as_deref().map(|since| self.since(since)).unwrap_or_default();
        let word = self.style.state(*state, state.as_str());
        let mut line = format!("{} {kind} {namespace}/{name}  {version}  {word}{since}", self.style.symbol(*state));
        if *state == State::Progressing {
            let is_dependent = |type_: &str| DEPENDENTS.contains(&type_);
            let met = component.conditions.iter().filter(|c| is_dependent(&c.type_) && c.status == "True").count();
            let met = i32::try_from(met).unwrap_or_default();
            // Writing to a String can't fail.
            let _ = write!(line, "  {} {met}/{CONDITIONS} conditions", bar(met, CONDITIONS, self.style.unicode));
        }
        let mut details = Vec::new();
        if let Some(problem) = problem {
            let reason = if problem.reason.is_empty() { &problem.condition } else { &problem.reason };
            details.push(format!("{reason}: {}", one_line(&problem.message)).trim_end_matches(": ").to_owned());
            if let Some(until) = problem.until.as_deref().and_then(|until| until.parse::<Timestamp>().ok()) {
                details.push(if until > self.options.now {
                    format!("Kubernetes gives up in {}", age(self.options.now, until))
                } else {
                    format!("Kubernetes gave up {} ago", age(until, self.options.now))
                });
            }
            details.extend(problem.remedy.iter().flat_map(Advice::lines));
        }
        details.extend(component.notes.iter().map(|note| format!("note: {}", one_line(note))));
        let shown = if self.options.is_wide { 5 } else { 1 };
        details.extend(self.repairs(&component.events).take(shown));
        Node { line, details, children: Vec::new() }
    }

    /// The last repairs of drift, newest first.
    fn repairs<'e>(&'e self, events: &'e [EventView]) -> impl Iterator<Item = String> + 'e {
        let repairs = events.iter().filter(|event| ["DriftRepaired", "DriftFight"].contains(&event.reason.as_str()));
        repairs.filter_map(|event| {
            let at: Timestamp = event.at.parse().ok()?;
            let is_recent = self.options.now.duration_since(at).as_secs() < RECENT;
            is_recent.then(|| format!("{} ago: {}", age(at, self.options.now), one_line(&event.message)))
        })
    }

    fn since(&self, time: &str) -> String {
        time.parse().map(|time| format!(" for {}", age(time, self.options.now))).unwrap_or_default()
    }
}

fn fleet_state(fleet: &FleetView) -> State {
    match fleet.reason.as_str() {
        _ if fleet.stages.iter().any(|stage| stage.failed > 0) => State::Failed,
        "InvalidSpec" | "RolledBack" | "TooManyFailures" => State::Failed,
        "AwaitingApproval" | "Paused" | "TooManyClusters" | "NoClusters" => State::Degraded,
        _ => State::Progressing,
    }
}

/// A progress bar: `done` of `all`.
pub fn bar(done: i32, all: i32, unicode: bool) -> String {
    let (done, all) = (usize::try_from(done).unwrap_or_default(), usize::try_from(all).unwrap_or_default());
    let filled = (done * BAR).checked_div(all).unwrap_or(BAR).min(BAR);
    let (full, empty) = if unicode { ("█", "░") } else { ("#", ".") };
    format!("[{}{}]", full.repeat(filled), empty.repeat(BAR - filled))
}

/// The time between `start` and `end`, as kubectl prints ages.
pub fn age(start: Timestamp, end: Timestamp) -> String {
    let seconds = end.duration_since(start).as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86400),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::command::terminal::visible;
    use knative_operator_overview::{Snapshot, Watched, overview};

    const NOW: &str = "2026-01-01T01:00:00Z";

    fn resource(name: &str, conditions: &[Value], version: &str) -> Value {
        json!({"metadata": {"namespace": "platform", "name": name, "generation": 1, "labels": {"operator.knative.dev/fleet": "prod"}},
            "spec": {"version": "1.23.0", "clusterProfileRef": {"namespace": "fleet-system", "name": name}},
            "status": {"observedGeneration": 1, "version": version, "conditions": conditions}})
    }

    fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
        json!({"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-01-01T00:57:00Z"})
    }

    /// A fleet of `ready` Ready clusters, one that is upgraded, and one that can't be reached.
    fn hub(ready: usize) -> Overview {
        let mut snapshot = Snapshot::default();
        let mut cluster = |name: &str, stage: &str, resource: Value| {
            let profile = json!({"metadata": {"namespace": "fleet-system", "name": name, "labels": {"stage": stage}}, "spec": {},
                "status": {"accessProviders": [{"name": "secretreader", "cluster": {"server": format!("https://{name}.example")}}],
                    "properties": [{"name": "region", "value": format!("eu-{stage}")}, {"name": "memory", "value": "1Gi"}]}});
            snapshot.set(Watched::Profiles, profile);
            snapshot.set(Watched::Servings, resource);
        };
        let done = [condition("Ready", "True", "", ""), condition("TargetClusterResolved", "True", "", "")];
        for number in 0..ready {
            let name = format!("a{number}");
            cluster(&name, "canary", resource(&name, &done, "1.23.0"));
        }
        let waiting = "Waiting on deployments: activator (0 of 1 replicas are updated, deadline 2026-01-01T01:10:00Z)";
        let met = ["InstallSucceeded", "VersionMigrationEligible"].map(|type_| condition(type_, "True", "", ""));
        let unmet = ["Ready", "DeploymentsAvailable"].map(|type_| condition(type_, "False", "NotReady", waiting));
        let progressing = [met, unmet].concat();
        cluster("b", "rest", resource("b", &progressing, "1.22.1"));
        let gone = "cannot reach the API server at https://c.example: connection refused";
        let unreachable = [
            condition("Ready", "False", "RemoteClusterUnreachable", gone),
            condition("TargetClusterResolved", "False", "RemoteClusterUnreachable", gone),
        ];
        cluster("c", "rest", resource("c", &unreachable, "1.22.1"));
        snapshot.set(
            Watched::Events,
            json!({"metadata": {"namespace": "platform", "name": "e"}, "involvedObject": {"kind": "KnativeServing", "namespace": "platform", "name": "b"},
                "reason": "DriftRepaired", "type": "Normal", "eventTime": "2026-01-01T00:55:00.000000Z",
                "message": "Repaired Deployment knative-serving/activator: field spec.replicas was changed by kubectl"}),
        );
        let total = i32::try_from(ready).unwrap();
        snapshot.set(
            Watched::Fleets,
            json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet",
                "metadata": {"namespace": "platform", "name": "prod", "generation": 3},
                "spec": {"placement": {"clusterSelector": {}, "namespaces": ["fleet-system"]}, "serving": {"spec": {"version": "1.23.0"}},
                    "rollout": {"stages": [{"name": "canary", "clusterSelector": {"matchLabels": {"stage": "canary"}},
                        "propertySelector": {"matchLabels": {"region": "eu-canary"}}}]}},
                "status": {"observedGeneration": 3, "updateRevision": "prod-2", "currentRevision": "prod-1", "conditions": [
                    condition("Ready", "False", "RollingOut", "1/3 updated to prod-2; 1 Ready"), condition("Progressing", "True", "RollingOut", "Stage rest")],
                    "stages": [
                        {"name": "canary", "state": "Complete", "clusters": total, "updated": total, "startedAt": "2026-01-01T00:50:00Z", "finishedAt": "2026-01-01T00:51:00Z"},
                        {"name": "rest", "state": "Progressing", "clusters": 2, "updating": 1, "startedAt": "2026-01-01T00:51:00Z"}]}}),
        );
        overview(&snapshot, NOW.parse().unwrap())
    }

    fn text(overview: &Overview, is_wide: bool, style: &Style) -> String {
        render(overview, &Options { is_wide, now: NOW.parse().unwrap() }, style)
    }

    #[test]
    fn tree_has_fleets_stages_clusters_and_remedies() {
        // The example in the document.
        let page = include_str!("../../../../../docs/user/status.md");
        let expected = page.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        assert_eq!(text(&hub(1), false, &Style::plain()), expected);
        let wide = text(&hub(1), true, &Style::plain());
        assert!(wide.contains("│   └── ✔ fleet-system/a0  Ready  https://a0.example\n│       │   credentials of secretreader, connected for 3m\n│       │   properties: region=eu-canary\n"), "{wide}");
    }

    #[test]
    fn control_characters_of_messages_are_shown() {
        let mut overview = hub(1);
        overview.fleets[0].message = "a\u{1b}[2J\u{202e}b\rc".to_owned();
        let shown = visible(&text(&overview, false, &Style { colors: true, ..Style::plain() }));
        assert!(shown.contains(r"a\u{1b}[2J\u{202e}b c") && shown.contains("\u{1b}[36m"), "{shown}");
    }

    #[test]
    fn many_clusters_are_counted_by_state() {
        let folded = text(&hub(998), false, &Style::plain());
        assert!(folded.contains("└── ✔ 998 clusters Ready\n"), "{folded}");
        assert!(folded.lines().count() < 25, "{folded}");
        assert!(text(&hub(998), true, &Style::plain()).lines().count() > 998 * 2);
        let narrow = Style { width: Some(40), unicode: false, colors: false };
        let folded = text(&hub(998), false, &narrow);
        assert!(folded.contains("[####################]") && folded.is_ascii(), "{folded}");
        // A command stays on one line.
        let mut prose = folded.lines().filter(|line| !line.contains("  kubectl "));
        assert!(prose.all(|line| line.chars().count() <= 60), "{folded}");
        assert!(folded.contains("  kubectl edit clusterprofile c -n fleet-system --subresource=status\n"), "{folded}");
    }
}
