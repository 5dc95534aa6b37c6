//! `knative-operator lint`: what the webhook would say, with no cluster at all.

use std::process::ExitCode;

use knative_operator_shared::rules::{self, Problem, Surroundings};

use super::render::Source;
use super::{print, read};
use crate::offer;
use crate::release::Bundle;

/// Flags of `lint`.
#[derive(Clone, Debug, clap::Args)]
pub struct LintArgs {
    #[command(flatten)]
    source: Source,
}

/// Prints everything that is wrong, each with its field and its rule. Exit status: 0 nothing refused, 1 something, 2 the file can't be read.
pub fn run(args: &LintArgs) -> ExitCode {
    let documents = match args.source.text().and_then(|text| read::documents(&text)) {
        Ok((documents, _)) => documents,
        Err(why) => {
            print(&format!("error: {}: {why}\n", args.source.from()));
            return ExitCode::from(2);
        }
    };
    // Without a bundle, what depends on the release is not judged.
    let releases = offer::releases(&Bundle::at(args.source.bundle().to_owned())).ok();
    let around = Surroundings { releases: releases.as_ref(), ..Surroundings::default() };
    let (mut text, mut refused) = (String::new(), 0);
    for document in &documents {
        let problems = match &document.resource {
            Ok(resource) => rules::faults(resource, &around),
            Err(problem) => vec![problem.clone()],
        };
        text.extend(document.warnings.iter().map(|warning| format!("warning: {}: {warning}\n", document.what)));
        text.extend(problems.iter().map(|problem| line(&document.what, problem)));
        refused += problems.iter().filter(|p| p.is_error()).count();
    }
    let of = if releases.is_some() {
        ""
    } else {
        " (without a release bundle: names and versions are not judged, see --releases)"
    };
    let summary = format!("{} resources, {refused} errors{of}\n", documents.len());
    text += &summary;
    print(&text);
    if refused == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn line(what: &str, problem: &Problem) -> String {
    let word = if problem.is_error() { "error" } else { "warning" };
    format!("{word}: {what}: {problem} [{}]\n", problem.rule.id)
}
