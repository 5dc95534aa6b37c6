//! Completions: the shell, or kubectl for its plugin, runs the command, which completes contexts,
//! namespaces and names of resources from the cluster.

use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use clap::{Arg, Command, CommandFactory, Parser};
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, complete};
use k8s_openapi::api::core::v1::Namespace;
use knative_operator_runtime::user::UserArgs;
use knative_operator_shared::text::show_controls;
use kube::api::ListParams;
use kube::core::DynamicObject;
use kube::{Api, ResourceExt};

use super::Args;
use super::output::{self, PROGRAM};
use knative_operator_overview::Watched;

/// Time limit of a request: a shell that waits is worse than no completions.
const LIMIT: Duration = Duration::from_secs(2);
/// Kinds of `wait`.
const KINDS: [(&str, Watched); 3] =
    [("knativeserving", Watched::Servings), ("knativeeventing", Watched::Eventings), ("knativefleet", Watched::Fleets)];

/// Name of the program that kubectl runs for the completions of its plugin: a link to the command.
const FOR_KUBECTL: &str = "kubectl_complete-knative_operator";

/// Answers the shell or kubectl, if it asks for completions, and ends the process.
pub fn answer() {
    let words: Vec<OsString> = std::env::args_os().collect();
    if words.first().and_then(|program| Path::new(program).file_name()) == Some(OsStr::new(FOR_KUBECTL)) {
        output::print_data(&for_kubectl(words));
        std::process::exit(0);
    }
    CompleteEnv::with_factory(|| with_completers(Args::command(), "")).complete();
}

/// The completions of the last of `words`, of which the first is the program: a line each, with a
/// tab and what it means, and what the shell does besides, as Cobra prints them
/// (<https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/>).
fn for_kubectl(mut words: Vec<OsString>) -> String {
    if words.len() < 2 {
        words.push(OsString::new());
    }
    let (last, folder) = (words.len() - 1, std::env::current_dir().ok());
    // No word can be completed after one that is wrong.
    let mut command = with_completers(Args::command(), "");
    let found = complete(&mut command, words, last, folder.as_deref()).unwrap_or_default();
    let mut text = String::new();
    for candidate in &found {
        let help = candidate.get_help().map(ToString::to_string).unwrap_or_default();
        // Writing to a String can't fail.
        let _ = match help.lines().next() {
            Some(line) => writeln!(text, "{}\t{line}", candidate.get_value().to_string_lossy()),
            None => writeln!(text, "{}", candidate.get_value().to_string_lossy()),
        };
    }
    // 0: without completions, the shell offers files. 4: it doesn't.
    text + if found.is_empty() { ":0\n" } else { ":4\n" }
}

/// `command`, below the command `parent`, with completers.
fn with_completers(command: Command, parent: &str) -> Command {
    let name = command.get_name().to_owned();
    let complete = |arg: Arg| match (name.as_str(), parent, arg.get_id().as_str()) {
        (_, _, "user-context") => arg.add(ArgValueCompleter::new(contexts)),
        (_, _, "user-namespace") => arg.add(ArgValueCompleter::new(namespaces)),
        ("wait", _, "target") => arg.add(ArgValueCompleter::new(resources)),
        (_, "fleet", "name") | ("preflight", _, "fleet") => arg.add(ArgValueCompleter::new(fleets)),
        _ => arg,
    };
    command.mut_args(complete).mut_subcommands(|below| with_completers(below, &name))
}

/// The flags of the connection that are on the line so far.
#[derive(Parser)]
#[command(ignore_errors = true, disable_help_flag = true, disable_version_flag = true)]
struct Line {
    #[command(flatten)]
    user: UserArgs,
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    _rest: Vec<String>,
}

/// The flags on the line: each flag with the word after it.
fn user() -> UserArgs {
    let words: Vec<String> = std::env::args().collect();
    let flags = ["--kubeconfig", "--context", "--namespace", "-n", "--as", "--as-group"];
    let is_flag = |word: &String| flags.iter().any(|flag| word == flag);
    let given = words.windows(2).filter(|pair| is_flag(&pair[0]) && !pair[1].is_empty()).flatten().cloned();
    let joined = words.iter().filter(|word| flags.iter().any(|flag| word.starts_with(&format!("{flag}=")))).cloned();
    Line::parse_from(["line".to_owned()].into_iter().chain(given).chain(joined)).user
}

fn candidates(current: &OsStr, all: Vec<String>) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy().into_owned();
    // The shell prints them. No name of Kubernetes has a control character.
    let is_candidate = |value: &String| value.starts_with(&current) && show_controls(value) == *value;
    all.into_iter().filter(is_candidate).map(CompletionCandidate::new).collect()
}

/// Contexts of the kubeconfig.
fn contexts(current: &OsStr) -> Vec<CompletionCandidate> {
    candidates(current, user().contexts().unwrap_or_default())
}

/// Namespaces of the hub.
fn namespaces(current: &OsStr) -> Vec<CompletionCandidate> {
    let names = request(async || {
        let client = user().connect(PROGRAM).await.ok()?.client;
        let all = Api::<Namespace>::all(client).list_metadata(&ListParams::default()).await.ok()?;
        Some(all.into_iter().map(|namespace| namespace.name_any()).collect())
    });
    candidates(current, names)
}

/// `KIND/NAME` of the resources in the namespace.
fn resources(current: &OsStr) -> Vec<CompletionCandidate> {
    let names = request(async || {
        let mut found = Vec::new();
        for (kind, watched) in KINDS {
            found.extend(names(watched).await.unwrap_or_default().into_iter().map(|name| format!("{kind}/{name}")));
        }
        Some(found)
    });
    candidates(current, names)
}

/// Names of the fleets in the namespace.
fn fleets(current: &OsStr) -> Vec<CompletionCandidate> {
    candidates(current, request(async || names(Watched::Fleets).await))
}

async fn names(kind: Watched) -> Option<Vec<String>> {
    let connection = user().connect(PROGRAM).await.ok()?;
    let api: Api<DynamicObject> = Api::namespaced_with(connection.client, &connection.namespace, &kind.resource());
    let all = api.list_metadata(&ListParams::default()).await.ok()?;
    Some(all.into_iter().map(|object| object.name_any()).collect())
}

/// The names that `load` finds within the time limit. Without a cluster there are none.
fn request(load: impl AsyncFnOnce() -> Option<Vec<String>>) -> Vec<String> {
    let names = output::block_on(async { tokio::time::timeout(LIMIT, load()).await });
    names.ok().and_then(Result::ok).flatten().unwrap_or_default()
}
