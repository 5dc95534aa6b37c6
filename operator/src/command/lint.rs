//! `knative-operator lint`: reports what the webhook would refuse or warn about, without a cluster.

use std::process::ExitCode;

use knative_operator_shared::rules::{self, RuleContext, Violation};

use super::input::Input;
use super::output::print;
use super::read;
use crate::release::Bundle;
use crate::startup::catalog;

/// Flags of `lint`.
#[derive(Clone, Debug, clap::Args)]
pub struct LintArgs {
    #[command(flatten)]
    input: Input,
}

/// Prints every violation with its field and rule. Exit status: 0 nothing refused, 1 refused, 2 the
/// file can't be read.
pub fn run(args: &LintArgs) -> ExitCode {
    let documents = match args.input.text().and_then(|text| read::documents(&text)) {
        Ok((documents, _)) => documents,
        Err(why) => {
            print(&format!("error: {}: {why}\n", args.input.from()));
            return ExitCode::from(2);
        }
    };
    // Without a bundle, rules that depend on the release are skipped.
    let catalog = catalog::releases(&Bundle::open(args.input.bundle().to_owned())).ok();
    let surroundings = RuleContext { catalog: catalog.as_ref(), ..RuleContext::default() };
    let (mut text, mut refused) = (String::new(), 0);
    for document in &documents {
        let violations = match &document.resource {
            Ok(resource) => rules::validate(resource, &surroundings),
            Err(violation) => vec![violation.clone()],
        };
        text.extend(document.warnings.iter().map(|warning| format!("warning: {}: {warning}\n", document.what)));
        text.extend(violations.iter().map(|violation| line(&document.what, violation)));
        refused += violations.iter().filter(|p| p.is_error()).count();
    }
    let remark = if catalog.is_some() {
        ""
    } else {
        " (without a release bundle: names and versions are not checked, see --releases)"
    };
    let summary = format!("{} resources, {refused} errors{remark}\n", documents.len());
    text += &summary;
    print(&text);
    if refused == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn line(what: &str, violation: &Violation) -> String {
    let word = if violation.is_error() { "error" } else { "warning" };
    format!("{word}: {what}: {violation} [{}]\n", violation.rule.id)
}
