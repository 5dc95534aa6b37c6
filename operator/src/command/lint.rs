//! `knative-operator lint`: reports what the webhook would refuse or warn about, without a cluster.

use std::process::ExitCode;

use knative_operator_shared::api::Knative;
use knative_operator_shared::rules::{self, FleetContext, RuleContext, Violation};
use knative_operator_shared::text::one_line;
use serde_json::{Value, json};

use super::files::File;
use super::input::Input;
use super::output::{self, Format};
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
    /// Output format.
    #[arg(short, long, value_parser = Format::among(&Format::TEXT_OR_VALUE), default_value = "text")]
    output: Format,
}

/// Prints every violation with its file, field and rule. Exit status: 0 nothing refused, 1 refused,
/// 2 a file, which is named besides, or the release bundle can't be read.
pub fn run(args: &LintArgs) -> ExitCode {
    output::exit(lint(args))
}

fn lint(args: &LintArgs) -> Result<ExitCode, String> {
    let (files, mut resources) = (args.input.files()?, 0);
    // Without a bundle, rules that depend on the release are skipped.
    let catalog = match catalog::releases(&Bundle::open(args.input.bundle().to_owned())) {
        Err(why) if args.input.is_bundle_named() => return Err(why.to_string()),
        read => read.ok(),
    };
    let surroundings = RuleContext { catalog: catalog.as_ref(), ..RuleContext::default() };
    let context = FleetContext { catalog: catalog.as_ref(), ..FleetContext::default() };
    let (mut findings, mut unreadable) = (Findings { is_strict: args.strict, ..Findings::default() }, Vec::new());
    for File { name, text } in &files {
        let read = read::documents(text, None).and_then(|(found, _)| Ok((found, read::fleet_documents(text)?)));
        let (documents, fleets) = match read {
            Ok(read) => read,
            Err(why) => {
                unreadable.push(format!("{name}: {why}"));
                continue;
            }
        };
        for document in &documents {
            findings.add(name, document, |resource| {
                let mut violations = rules::validate(resource, &surroundings);
                violations.extend(patch_violation(&args.input, resource, &violations));
                violations
            });
        }
        for document in &fleets {
            findings.add(name, document, |fleet| rules::validate_fleet(fleet, &context));
        }
        resources += documents.len() + fleets.len();
    }
    if resources == 0 && unreadable.is_empty() {
        return Err(format!("{}: there is no KnativeServing, KnativeEventing or KnativeFleet", args.input.names()));
    }
    if resources > 0 {
        let code = findings.print(args.output, resources, catalog.is_some());
        if unreadable.is_empty() {
            return Ok(code);
        }
    }
    Err(unreadable.join("\n"))
}

/// What is printed.
#[derive(Default)]
struct Findings {
    text: String,
    values: Vec<Value>,
    errors: usize,
    /// Whether unknown fields are errors.
    is_strict: bool,
}

impl Findings {
    /// Adds what `validate` finds in the resource of `document` in `file`, and what reading it
    /// found.
    fn add<R>(&mut self, file: &str, document: &Document<R>, validate: impl FnOnce(&R) -> Vec<Violation>) {
        let place = (file, document.what.as_str());
        document.warnings.iter().for_each(|warning| self.line(false, place, warning, None));
        document.unknown.iter().for_each(|field| self.line(self.is_strict, place, field, None));
        let violations = document.resource.as_ref().map_or_else(|violation| vec![violation.clone()], validate);
        for violation in violations {
            self.line(violation.is_error(), place, &violation.to_string(), Some(&violation));
        }
    }

    /// Adds `text` about a resource in a file; and the violation that it describes.
    fn line(&mut self, is_error: bool, (file, what): (&str, &str), text: &str, violation: Option<&Violation>) {
        self.errors += usize::from(is_error);
        let severity = if is_error { "error" } else { "warning" };
        // What the file has could look like another finding.
        let text = one_line(text);
        let (field, rule) = violation.map(|violation| (violation.field.as_str(), violation.rule.id)).unzip();
        let mark = rule.map(|rule| format!(" [{rule}]")).unwrap_or_default();
        self.text.extend([format!("{severity}: {file}: {what}: {text}{mark}\n")]);
        self.values.push(json!({"severity": severity, "file": file, "resource": what, "message": text,
            "field": field, "rule": rule}));
    }

    /// Prints the findings about a number of `resources`. `has_bundle`: whether names and versions
    /// were checked.
    fn print(&self, format: Format, resources: usize, has_bundle: bool) -> ExitCode {
        let Self { text, values, errors, .. } = self;
        let remark = if has_bundle {
            ""
        } else {
            " (without a release bundle: names and versions are not checked, see --releases)"
        };
        let summary = format!("{}, {}{remark}", count(resources, "resource"), count(*errors, "error"));
        let value = json!({"resources": resources, "errors": errors, "releaseBundle": has_bundle, "findings": values});
        format.print(&format!("{text}{summary}\n"), &value);
        if *errors == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
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
