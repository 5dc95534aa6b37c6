//! `knative-operator lint`: reports what the webhook would refuse or warn about, without a cluster.

use std::process::ExitCode;

use knative_operator_shared::api::Knative;
use knative_operator_shared::rules::{self, FleetContext, RuleContext, Violation};

use super::input::Input;
use super::output::{self, print};
use super::read;
use super::release_args::InputError;
use crate::startup::catalog;
use knative_operator_release::Bundle;
use knative_operator_render::RenderError;

/// Flags of `lint`.
#[derive(Clone, Debug, clap::Args)]
pub struct LintArgs {
    #[command(flatten)]
    input: Input,
}

/// Prints every violation with its field and rule. Exit status: 0 nothing refused, 1 refused, 2 the
/// file or the release bundle can't be read.
pub fn run(args: &LintArgs) -> ExitCode {
    let read = args.input.text().and_then(|text| Ok((read::documents(&text)?.0, read::fleets(&text)?)));
    let (documents, fleets) = match read {
        Ok((documents, fleets)) if documents.is_empty() && fleets.is_empty() => {
            print(&format!(
                "error: {}: the file has no KnativeServing, KnativeEventing or KnativeFleet\n",
                args.input.from()
            ));
            return ExitCode::from(2);
        }
        Ok(read) => read,
        Err(why) => {
            print(&format!("error: {}: {why}\n", args.input.from()));
            return ExitCode::from(2);
        }
    };
    // Without a bundle, rules that depend on the release are skipped.
    let catalog = match catalog::releases(&Bundle::open(args.input.bundle().to_owned())) {
        Err(why) if args.input.is_bundle_named() => {
            print(&format!("error: {why}\n"));
            return ExitCode::from(2);
        }
        read => read.ok(),
    };
    let surroundings = RuleContext { catalog: catalog.as_ref(), ..RuleContext::default() };
    let (mut text, mut refused) = (String::new(), 0);
    for document in &documents {
        let violations = match &document.resource {
            Ok(resource) => {
                let mut violations = rules::validate(resource, &surroundings);
                violations.extend(patch_violation(&args.input, resource, &violations));
                violations
            }
            Err(violation) => vec![violation.clone()],
        };
        text.extend(document.warnings.iter().map(|warning| format!("warning: {}: {warning}\n", document.what)));
        text.extend(violations.iter().map(|violation| line(&document.what, violation)));
        refused += violations.iter().filter(|p| p.is_error()).count();
    }
    for (what, fleet) in &fleets {
        let context = FleetContext { catalog: catalog.as_ref(), ..FleetContext::default() };
        let violations =
            fleet.as_ref().map_or_else(|v| vec![v.clone()], |fleet| rules::validate_fleet(fleet, &context));
        text.extend(violations.iter().map(|violation| line(what, violation)));
        refused += violations.iter().filter(|p| p.is_error()).count();
    }
    let remark = if catalog.is_some() {
        ""
    } else {
        " (without a release bundle: names and versions are not checked, see --releases)"
    };
    let summary = format!("{} resources, {refused} errors{remark}\n", documents.len() + fleets.len());
    text += &summary;
    print(&text);
    if refused == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The violation of the first patch that can't be applied, unless `violations` has one of a patch.
fn patch_violation(input: &Input, resource: &Knative, violations: &[Violation]) -> Option<Violation> {
    let has_violation = violations.iter().any(|violation| violation.field.starts_with("spec.patches["));
    if resource.common().patches.is_empty() || has_violation {
        return None;
    }
    match output::runtime().ok()?.block_on(input.render(resource)) {
        Err(InputError::Render(RenderError::Patch(violation))) => Some(violation),
        _ => None,
    }
}

fn line(what: &str, violation: &Violation) -> String {
    let word = if violation.is_error() { "error" } else { "warning" };
    format!("{word}: {what}: {violation} [{}]\n", violation.rule.id)
}
