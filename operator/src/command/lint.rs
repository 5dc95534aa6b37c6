//! `knative-operator lint`: reports what the webhook would refuse or warn about, without a cluster.

use std::process::ExitCode;

use knative_operator_shared::api::Knative;
use knative_operator_shared::rules::{self, FleetContext, RuleContext, Violation};

use super::input::Input;
use super::output::{self, print};
use super::read::{self, Document};
use super::release_args::InputError;
use crate::startup::catalog;
use knative_operator_release::Bundle;
use knative_operator_render::RenderError;

/// Flags of `lint`.
#[derive(Clone, Debug, clap::Args)]
pub struct LintArgs {
    #[command(flatten)]
    input: Input,
    /// Treats unknown fields as errors.
    #[arg(long)]
    strict: bool,
}

/// Prints every violation with its field and rule. Exit status: 0 nothing refused, 1 refused, 2 the
/// file or the release bundle can't be read.
pub fn run(args: &LintArgs) -> ExitCode {
    output::exit(lint(args))
}

fn lint(args: &LintArgs) -> Result<ExitCode, String> {
    let text = args.input.text()?;
    let about = |why: String| format!("{}: {why}", args.input.from());
    let (documents, _) = read::documents(&text, None).map_err(about)?;
    let fleets = read::fleet_documents(&text).map_err(about)?;
    if documents.is_empty() && fleets.is_empty() {
        return Err(about("the file has no KnativeServing, KnativeEventing or KnativeFleet".to_owned()));
    }
    // Without a bundle, rules that depend on the release are skipped.
    let catalog = match catalog::releases(&Bundle::open(args.input.bundle().to_owned())) {
        Err(why) if args.input.is_bundle_named() => return Err(why.to_string()),
        read => read.ok(),
    };
    let surroundings = RuleContext { catalog: catalog.as_ref(), ..RuleContext::default() };
    let mut findings = Findings { is_strict: args.strict, ..Findings::default() };
    for document in &documents {
        findings.add(document, |resource| {
            let mut violations = rules::validate(resource, &surroundings);
            violations.extend(patch_violation(&args.input, resource, &violations));
            violations
        });
    }
    let context = FleetContext { catalog: catalog.as_ref(), ..FleetContext::default() };
    for document in &fleets {
        findings.add(document, |fleet| rules::validate_fleet(fleet, &context));
    }
    let remark = if catalog.is_some() {
        ""
    } else {
        " (without a release bundle: names and versions are not checked, see --releases)"
    };
    let (resources, errors) = (documents.len() + fleets.len(), findings.errors);
    print(&format!("{}{}, {}{remark}\n", findings.text, count(resources, "resource"), count(errors, "error")));
    Ok(if errors == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What is printed.
#[derive(Default)]
struct Findings {
    text: String,
    errors: usize,
    /// Whether unknown fields are errors.
    is_strict: bool,
}

impl Findings {
    /// Adds what `validate` finds in the resource of `document`, and what reading it found.
    fn add<R>(&mut self, document: &Document<R>, validate: impl FnOnce(&R) -> Vec<Violation>) {
        document.warnings.iter().for_each(|warning| self.line(false, &document.what, warning));
        document.unknown.iter().for_each(|field| self.line(self.is_strict, &document.what, field));
        let violations = document.resource.as_ref().map_or_else(|violation| vec![violation.clone()], validate);
        for violation in violations {
            self.line(violation.is_error(), &document.what, &format!("{violation} [{}]", violation.rule.id));
        }
    }

    fn line(&mut self, is_error: bool, what: &str, text: &str) {
        self.errors += usize::from(is_error);
        let word = if is_error { "error" } else { "warning" };
        self.text.extend([format!("{word}: {what}: {text}\n")]);
    }
}

fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
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
