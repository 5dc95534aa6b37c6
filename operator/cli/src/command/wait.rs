//! `knative-operator wait`: waits for a resource, and prints what it waits for.

use std::process::ExitCode;
use std::time::Duration;

use jiff::Timestamp;
use knative_operator_runtime::duration::duration;
use knative_operator_runtime::user::{Connection, UserArgs};
use knative_operator_shared::text::one_line;
use tokio::time::Instant;

use super::output;
use knative_operator_overview::follow::Follower;
use knative_operator_overview::{Advice, Overview, Snapshot, State, Watched, overview};

/// Time for which a problem that does not end by itself must last, so that a controller which
/// creates several objects in a row is not interrupted.
const SETTLE: Duration = Duration::from_secs(2);

/// Flags of `wait`.
#[derive(Clone, Debug, clap::Args)]
pub struct WaitArgs {
    #[command(flatten)]
    user: UserArgs,
    /// The resource: knativeserving/NAME, knativeeventing/NAME or knativefleet/NAME.
    #[arg(value_name = "KIND/NAME")]
    target: String,
    /// Its name, if it is not part of the first argument.
    name: Option<String>,
    /// What to wait for. The words of kubectl, condition=Ready and delete, mean the same.
    #[arg(long = "for", value_enum, default_value_t, ignore_case = true)]
    goal: Goal,
    /// Time limit, such as 90s, 15m or 1h; 0s checks once. That of kubectl wait is 30s by default,
    /// which is shorter than most installations.
    #[arg(long, default_value = "5m", value_name = "DURATION", value_parser = duration)]
    timeout: Duration,
}

/// What to wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Goal {
    /// The resource is Ready, with its newest spec.
    #[default]
    #[value(aliases = ["condition=Ready", "condition=Ready=True"])]
    Ready,
    /// The resource does not exist.
    #[value(alias = "delete")]
    Deleted,
}

/// A resource, by kind and name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Named {
    kind: Watched,
    name: String,
}

/// The resource `text`, which is KIND/NAME, or a KIND with its `name`.
fn target(text: &str, name: Option<&str>) -> Result<Named, String> {
    let pair = match name {
        None => text.split_once('/'),
        Some(name) => Some((text, name)),
    };
    let Some((kind, name)) = pair.filter(|(kind, name)| !name.is_empty() && !format!("{kind}{name}").contains('/'))
    else {
        return Err("name one resource as KIND/NAME, such as knativeserving/knative-serving".to_owned());
    };
    let kind = kind.to_lowercase();
    let kind = match kind.split('.').next().unwrap_or_default() {
        "knativeserving" | "knativeservings" => Watched::Servings,
        "knativeeventing" | "knativeeventings" => Watched::Eventings,
        "knativefleet" | "knativefleets" | "kfleet" => Watched::Fleets,
        _ => return Err(format!("the kind must be knativeserving, knativeeventing or knativefleet, not {kind}")),
    };
    Ok(Named { kind, name: name.to_owned() })
}

/// Waits. Exit status: 0 done, 1 timeout or a problem that does not end by itself, 2 error.
pub fn run(args: &WaitArgs) -> ExitCode {
    let target = target(&args.target, args.name.as_deref());
    output::exit(target.map(|target| output::run_on(&args.user, |connection| execute(args, &target, connection))))
}

/// How far a resource is.
#[derive(Clone, Debug, PartialEq)]
enum Progress {
    Done(String),
    Waiting { text: String, remedy: Option<Advice> },
}

async fn execute(args: &WaitArgs, target: &Named, connection: Connection) -> Result<ExitCode, String> {
    let deadline = Instant::now() + args.timeout;
    let Connection { client, namespace, .. } = connection;
    let mut follower = Follower::start(&client, Some(&namespace));
    follower.listed().await.map_err(|error| error.to_string())?;
    if let Some((_, error)) = follower.snapshot().errors().find(|(kind, _)| *kind == target.kind) {
        return Err(error.to_owned());
    }
    let (mut printed, mut permanent_since) = (String::new(), None);
    loop {
        let current = overview(follower.snapshot(), Timestamp::now());
        let progress = progress((args.goal, target), &namespace, follower.snapshot(), &current);
        let text = match (&progress, follower.disconnected()) {
            (Progress::Done(text), _) => text.clone(),
            (_, Some(error)) => format!("reconnecting to the API server: {}", one_line(error)),
            (Progress::Waiting { text, .. }, None) => text.clone(),
        };
        if text != printed {
            output::print(&format!("{} {text}\n", Timestamp::now().strftime("%H:%M:%S")));
            printed.clone_from(&text);
        }
        let Progress::Waiting { remedy, .. } = progress else { return Ok(ExitCode::SUCCESS) };
        let is_permanent =
            remedy.as_ref().is_some_and(|remedy| !remedy.can_recover) && follower.disconnected().is_none();
        permanent_since = is_permanent.then(|| permanent_since.unwrap_or_else(Instant::now));
        let settled = permanent_since.map(|since| since + SETTLE);
        tokio::select! {
            () = follower.changed() => {}
            () = tokio::time::sleep_until(settled.unwrap_or(deadline).min(deadline)) => {
                let remedy = if is_permanent {
                    output::report(&format!("this does not end by itself: {text}"));
                    remedy
                } else {
                    output::report(&format!("{}: {text}", timed_out(args.goal, target, &namespace)));
                    Some(remedy.unwrap_or_else(|| next_step(&namespace)))
                };
                remedy.iter().flat_map(Advice::lines).for_each(|line| output::report(&line));
                return Ok(ExitCode::from(1));
            }
        }
    }
}

/// What the command waited for.
fn timed_out(goal: Goal, target: &Named, namespace: &str) -> String {
    let state = match goal {
        Goal::Ready => "be Ready",
        Goal::Deleted => "be deleted",
    };
    format!("timed out waiting for {} {namespace}/{} to {state}", target.kind.resource().kind, target.name)
}

/// What to do after a timeout if there is no remedy.
fn next_step(namespace: &str) -> Advice {
    let text = format!("Set a longer --timeout, or see the state: `knative-operator status -n {namespace}`");
    Advice { general: text.clone(), text, can_recover: true }
}

fn progress((goal, target): (Goal, &Named), namespace: &str, snapshot: &Snapshot, overview: &Overview) -> Progress {
    let Named { kind, name } = target;
    let what = format!("{} {namespace}/{name}", kind.resource().kind);
    let exists = snapshot.get(*kind, &(namespace.to_owned(), name.clone())).is_some();
    let waiting = |text: String| Progress::Waiting { text, remedy: None };
    match (goal, exists) {
        (Goal::Deleted, false) => Progress::Done(format!("{what} does not exist")),
        (Goal::Ready, false) => waiting(format!("{what} does not exist yet")),
        _ if *kind == Watched::Fleets => fleet(goal, namespace, name, overview),
        _ => component(goal, (kind.resource().kind.as_str(), namespace, name), overview),
    }
}

fn fleet(goal: Goal, namespace: &str, name: &str, overview: &Overview) -> Progress {
    let Some(fleet) = overview.fleets.iter().find(|fleet| fleet.namespace == namespace && fleet.name == name) else {
        return Progress::Waiting { text: "the fleet can't be read".to_owned(), remedy: None };
    };
    if fleet.ready && goal == Goal::Ready {
        return Progress::Done(format!("KnativeFleet {namespace}/{name} is Ready"));
    }
    let stage = fleet.stages.iter().find(|stage| !matches!(stage.state, "Complete" | "RolledBack"));
    let stage = stage.map(|stage| format!("stage {}: {}/{} updated; ", stage.name, stage.updated, stage.total));
    let text = format!("{}{}: {}", stage.unwrap_or_default(), fleet.reason, one_line(&fleet.message));
    Progress::Waiting { text, remedy: fleet.remedy.clone().filter(|_| goal == Goal::Ready) }
}

fn component(goal: Goal, (kind, namespace, name): (&str, &str, &str), overview: &Overview) -> Progress {
    let mut components = overview.clusters.iter().flat_map(|cluster| &cluster.components);
    let found = components.find(|c| c.kind == kind && c.namespace == namespace && c.name == name);
    let Some(component) = found else {
        return Progress::Waiting { text: "the resource can't be read".to_owned(), remedy: None };
    };
    let is_installed = component.target_version.is_none();
    if goal == Goal::Ready && component.state == State::Ready && is_installed {
        let version = component.version.as_deref().unwrap_or_default();
        return Progress::Done(format!("{kind} {namespace}/{name} is Ready, version {version}"));
    }
    let text = match &component.problem {
        Some(problem) if !problem.reason.is_empty() => format!("{}: {}", problem.reason, one_line(&problem.message)),
        Some(problem) => format!("waiting for {}", problem.condition),
        None => match component.target_version.as_deref().filter(|_| component.state != State::Terminating) {
            Some(target) => format!("{}: version {target} is not installed yet", component.state.as_str()),
            None => format!("{}: the operator has not looked at the newest spec yet", component.state.as_str()),
        },
    };
    let remedy = component.problem.as_ref().and_then(|problem| problem.remedy.clone());
    Progress::Waiting { text, remedy: remedy.filter(|_| goal == Goal::Ready) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_kind_and_name() {
        let parsed = |text| target(text, None).map(|target| (target.kind, target.name));
        assert_eq!(parsed("KnativeServing/a"), Ok((Watched::Servings, "a".to_owned())));
        assert_eq!(parsed("knativeeventings.operator.knative.dev/a"), Ok((Watched::Eventings, "a".to_owned())));
        assert_eq!(parsed("kfleet/a"), Ok((Watched::Fleets, "a".to_owned())));
        assert_eq!(target("KnativeServing", Some("a")), target("knativeserving/a", None));
        for wrong in ["a", "knativeserving/", "pod/a", "/a", "knativeserving/a/b"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
        for (kind, name) in [("knativeserving/a", "b"), ("knativeserving", ""), ("knativeserving", "a/b")] {
            assert!(target(kind, Some(name)).is_err(), "{kind} {name}");
        }
    }

    #[test]
    fn timeout_says_what_it_waited_for_and_what_to_do() {
        let target = target("knativefleet/a", None).unwrap();
        assert_eq!(timed_out(Goal::Ready, &target, "n"), "timed out waiting for KnativeFleet n/a to be Ready");
        assert_eq!(timed_out(Goal::Deleted, &target, "n"), "timed out waiting for KnativeFleet n/a to be deleted");
        assert_eq!(
            next_step("n").lines(),
            ["What to do: Set a longer --timeout, or see the state:", "  knative-operator status -n n"]
        );
    }

    #[test]
    fn words_of_kubectl_mean_the_same() {
        use clap::ValueEnum;
        for (word, goal) in [
            ("ready", Goal::Ready),
            ("condition=ready", Goal::Ready),
            ("deleted", Goal::Deleted),
            ("delete", Goal::Deleted),
        ] {
            assert_eq!(Goal::from_str(word, true), Ok(goal), "{word}");
        }
    }
}
