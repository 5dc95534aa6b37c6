//! The convention for commands in docs/develop/how-to.md, checked on all visible commands.

use std::collections::{BTreeMap, BTreeSet};

use clap::{Arg, ArgAction, Command, CommandFactory};

use super::Args;

/// Commands that talk to an API server as a user.
const WITH_CLUSTER: [&str; 10] =
    ["audit", "diff", "fleet", "preflight", "status", "take-over", "ui", "upgrade plan", "version", "wait"];
/// What commands print.
const FORMATS: [&str; 4] = ["text", "wide", "json", "yaml"];
/// What `images` prints besides.
const IMAGES: [&str; 3] = ["crane", "skopeo", "registry"];
/// What `lint` prints besides.
const LINT: &str = "sarif";

/// Visits `command` and the visible commands below it, with their names.
fn visit(command: &Command, parent: &str, check: &mut impl FnMut(&str, &Command)) {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        let name = format!("{parent} {}", below.get_name());
        let name = name.trim_start();
        check(name, below);
        visit(below, name, check);
    }
}

/// What `find` finds wrong with the visible commands.
fn wrong(mut find: impl FnMut(&str, &Command) -> Vec<String>) -> Vec<String> {
    let mut wrong = Vec::new();
    visit(&Args::command(), "", &mut |name, command| {
        wrong.extend(find(name, command).into_iter().map(|why| format!("{name}: {why}")));
    });
    wrong
}

fn is_sentence(text: &str) -> bool {
    text.starts_with(char::is_uppercase) && !text.starts_with("Whether")
}

#[test]
fn commands_and_flags_have_sentences() {
    let found = wrong(|_, command| {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let mut wrong: Vec<_> = (!is_sentence(&about)).then(|| "no sentence about it".to_owned()).into_iter().collect();
        let has_help = |flag: &&Arg| flag.get_help().is_some_and(|help| is_sentence(&help.to_string()));
        let without = command.get_arguments().filter(|flag| !has_help(flag));
        wrong.extend(without.map(|flag| format!("{}: the help is no sentence, or begins with Whether", flag.get_id())));
        wrong
    });
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn commands_name_their_exit_statuses_below_the_first_paragraph() {
    let found = wrong(|name, command| {
        if command.has_subcommands() {
            return Vec::new();
        }
        let (about, long) = (command.get_about(), command.get_long_about());
        let [about, long] = [about, long].map(|text| text.map(ToString::to_string).unwrap_or_default());
        let status = long.split("Exit status: ").nth(1).unwrap_or_default();
        let error = if name == "run" { "1 error" } else { "2 error" };
        let is_listed = status.starts_with("0 ") && status.contains(&format!(", {error}"));
        let is_apart = !about.contains("Exit status");
        (!(is_listed && is_apart)).then(|| format!("the exit statuses are: {status:?}")).into_iter().collect()
    });
    assert_eq!(found, Vec::<String>::new());
}

/// Short form, value, environment variable and heading of `flag`; all commands have the same.
fn form(flag: &Arg) -> String {
    let value = flag.get_value_names().filter(|_| flag.get_action().takes_values());
    format!("{:?} {value:?} {:?} {:?}", flag.get_short(), flag.get_env(), flag.get_help_heading())
}

#[test]
fn same_flag_has_the_same_form_in_all_commands() {
    let (mut forms, mut longs) =
        (BTreeMap::<String, BTreeSet<String>>::new(), BTreeMap::<char, BTreeSet<String>>::new());
    visit(&Args::command(), "", &mut |name, command| {
        // The operator's own flags are those of the Go operator.
        for flag in command.get_arguments().filter(|_| name != "run") {
            let Some(long) = flag.get_long() else { continue };
            forms.entry(long.to_owned()).or_default().insert(form(flag));
            if let Some(short) = flag.get_short() {
                longs.entry(short).or_default().insert(long.to_owned());
            }
        }
    });
    forms.retain(|_, forms| forms.len() > 1);
    longs.retain(|_, longs| longs.len() > 1);
    assert_eq!((forms, longs), (BTreeMap::new(), BTreeMap::new()));
    let shorts = |long: &str| {
        let mut found = BTreeSet::new();
        visit(&Args::command(), "", &mut |name, command| {
            let flag = command.get_arguments().find(|flag| name != "run" && flag.get_long() == Some(long));
            found.extend(flag.map(Arg::get_short));
        });
        found
    };
    for (long, short) in [
        ("filename", 'f'),
        ("recursive", 'R'),
        ("output", 'o'),
        ("namespace", 'n'),
        ("all-namespaces", 'A'),
        ("watch", 'w'),
        ("yes", 'y'),
    ] {
        assert_eq!(shorts(long), BTreeSet::from([Some(short)]), "{long}");
    }
}

#[test]
fn kinds_have_any_letter_case() {
    let found = wrong(|_, command| {
        let kind = command.get_arguments().filter(|flag| flag.get_long() == Some("kind"));
        kind.filter(|flag| !flag.is_ignore_case_set()).map(|flag| flag.get_id().to_string()).collect()
    });
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn outputs_have_the_same_words() {
    let found = wrong(|name, command| {
        let output = command.get_arguments().find(|flag| flag.get_long() == Some("output"));
        let Some(output) = output else { return Vec::new() };
        let words: Vec<_> = output.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
        let is_own = |word: &str| name == "images" && IMAGES.contains(&word) || name == "lint" && word == LINT;
        let is_known = |word: &str| FORMATS.contains(&word) || is_own(word);
        let others = words.iter().filter(|word| !is_known(word));
        let mut wrong: Vec<_> = others.map(|word| format!("-o {word} is none of {FORMATS:?}")).collect();
        for word in ["json", "yaml"] {
            wrong.extend((!words.iter().any(|other| other == word)).then(|| format!("-o lacks {word}")));
        }
        wrong
    });
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn commands_with_a_cluster_connect_as_kubectl_does() {
    let connection = ["kubeconfig", "context", "namespace", "as", "as-group", "request-timeout"];
    let mut with_cluster = Vec::new();
    let found = wrong(|name, command| {
        let flags = || command.get_arguments().filter_map(Arg::get_long);
        let has = connection.iter().filter(|flag| flags().any(|other| other == **flag)).count();
        if name == "run" || has == 0 {
            return Vec::new();
        }
        with_cluster.push(name.to_owned());
        let repeated = command.get_arguments().find(|flag| flag.get_long() == Some("as-group"));
        let is_repeated = repeated.is_some_and(|flag| matches!(flag.get_action(), ArgAction::Append));
        (has != connection.len() || !is_repeated)
            .then(|| format!("it has {has} of {connection:?}"))
            .into_iter()
            .collect()
    });
    assert_eq!(found, Vec::<String>::new());
    with_cluster.sort();
    assert_eq!(with_cluster, WITH_CLUSTER);
}

#[test]
fn flags_of_the_cluster_are_below_their_heading() {
    let of_cluster = ["kubeconfig", "context", "namespace", "all-namespaces", "as", "as-group", "request-timeout"];
    let found = wrong(|name, command| {
        let flags = command.get_arguments().filter(|_| name != "run");
        let differs = |flag: &&Arg| {
            let is_of_cluster = flag.get_long().is_some_and(|long| of_cluster.contains(&long));
            is_of_cluster != (flag.get_help_heading() == Some("Cluster options"))
        };
        flags.filter(differs).map(|flag| flag.get_id().to_string()).collect()
    });
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn help_says_which_namespace_is_the_default() {
    let mut helps = BTreeMap::<String, Vec<String>>::new();
    visit(&Args::command(), "", &mut |name, command| {
        let flag = command.get_arguments().find(|flag| flag.get_id().as_str() == "user-namespace");
        if let Some(help) = flag.and_then(Arg::get_help) {
            helps.entry(help.to_string()).or_default().push(name.to_owned());
        }
    });
    let mut named = |help: &str| {
        let mut names = helps.remove(help).unwrap_or_default();
        names.sort();
        names
    };
    assert_eq!(named("Namespace. Defaults to all"), ["audit", "ui", "upgrade plan"]);
    let of_context = ["fleet", "preflight", "status", "take-over", "wait"];
    assert_eq!(named("Namespace. Defaults to that of the context"), of_context);
    let of_diff = "Namespace of resources without one. Defaults to knative-serving and knative-eventing";
    assert_eq!(named(of_diff), ["diff"]);
    assert_eq!(named("Namespace of the operator. Defaults to knative-operator"), ["version"]);
}
