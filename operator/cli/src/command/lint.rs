//! `knative-operator lint`: reports what the webhook would refuse or warn about, without a cluster.

use std::collections::BTreeMap;
use std::process::ExitCode;

use knative_operator_rules as rules;
use knative_operator_rules::{FleetContext, RuleContext, Violation};
use knative_operator_shared::api::Knative;
use knative_operator_shared::text::one_line;
use serde_json::{Value, json};

use super::files::{File, FileArgs, Unreadable};
use super::lines::Lines;
use super::output::{self, Format};
use super::read::{self, Document};
use super::release_args::{InputError, ReleaseArgs};
use super::remark::Remark;
use super::sarif;
use knative_operator_release::{BUNDLE_HINT, Bundle, catalog};
use knative_operator_render::{RenderError, release_names};

/// What is not checked without a release bundle.
const UNCHECKED: &str =
    "versions, patches, and names of workloads, containers, Services and ConfigMaps are not checked";

/// Flags of `lint`.
#[derive(Clone, Debug, clap::Args)]
pub struct LintArgs {
    #[command(flatten)]
    files: FileArgs,
    #[command(flatten)]
    releases: ReleaseArgs,
    /// Treats unknown fields as errors.
    #[arg(long)]
    strict: bool,
    /// Output format.
    #[arg(short, long, value_parser = Format::among(&[Format::Text, Format::Json, Format::Yaml, Format::Sarif]),
        default_value = "text")]
    output: Format,
}

/// Prints every violation with its file, field and rule. Exit status: 0 nothing refused, 1 refused,
/// 2 a file or the release bundle can't be read. A file hides nothing that is found in others.
pub fn run(args: &LintArgs) -> ExitCode {
    output::exit(lint(args))
}

fn lint(args: &LintArgs) -> Result<ExitCode, String> {
    let (files, mut unreadable) = args.files.read();
    // Without a bundle, rules that depend on the release are skipped.
    let catalog = match catalog(&Bundle::open(args.releases.releases.clone()), release_names) {
        Err(why) if args.releases.is_bundle_named() => return Err(why.to_string()),
        read => read.ok(),
    };
    let surroundings = RuleContext { catalog: catalog.as_ref(), ..RuleContext::default() };
    let context = FleetContext { catalog: catalog.as_ref(), ..FleetContext::default() };
    let mut findings = Findings { is_strict: args.strict, has_bundle: catalog.is_some(), ..Findings::default() };
    for File { name, text } in files {
        let read = read::documents(&text, None).and_then(|(found, _)| Ok((found, read::fleet_documents(&text)?)));
        let (documents, fleets) = match read {
            Ok(read) => read,
            Err(why) => {
                unreadable.push(Unreadable { text: format!("{name}: {why}"), name });
                continue;
            }
        };
        let lines = Lines::of(&text);
        for document in &documents {
            findings.add((name.as_str(), &lines), document, |resource| {
                let mut violations = rules::validate(resource, &surroundings);
                let (violation, remark) = match check_patches(&args.releases, resource, &violations) {
                    Ok(violation) => (violation, None),
                    Err(remark) => (None, Some(remark)),
                };
                violations.extend(violation);
                (violations, remark)
            });
        }
        for document in &fleets {
            findings.add((name.as_str(), &lines), document, |fleet| (rules::validate_fleet(fleet, &context), None));
        }
    }
    if findings.resources == 0 && unreadable.is_empty() {
        return Err(format!("{}: there is no KnativeServing, KnativeEventing or KnativeFleet", args.files.names()));
    }
    let code = findings.print(args.output, &unreadable);
    if unreadable.is_empty() { Ok(code) } else { Err(Unreadable::lines(&unreadable)) }
}

/// What is printed.
#[derive(Default)]
struct Findings {
    text: String,
    values: Vec<Value>,
    /// Identifiers and requirements of the violated rules.
    rules: BTreeMap<&'static str, &'static str>,
    errors: usize,
    /// Number of resources.
    resources: usize,
    /// Whether unknown fields are errors.
    is_strict: bool,
    /// Whether names and versions were checked.
    has_bundle: bool,
}

/// A file, kind and name of a resource in it, the path of a field, and its line.
type Place<'a> = (&'a str, &'a str, &'a str, Option<usize>);

impl Findings {
    /// Adds what `validate` finds in the resource of `document` in `file`, and what reading it
    /// found.
    fn add<R>(
        &mut self,
        (file, lines): (&str, &Lines<'_>),
        document: &Document<R>,
        validate: impl FnOnce(&R) -> (Vec<Violation>, Option<Remark>),
    ) {
        self.resources += 1;
        let what = document.what.as_str();
        let (violations, remark) = match &document.resource {
            Ok(resource) => validate(resource),
            Err(violation) => (vec![violation.clone()], None),
        };
        let place = |field| (file, what, field, lines.of_field(what, field));
        for remark in document.warnings.iter().chain(&remark) {
            self.line(false, place(remark.field.as_str()), &remark.to_string(), None);
        }
        for remark in &document.unknown {
            self.line(self.is_strict, place(remark.field.as_str()), &remark.to_string(), None);
        }
        for violation in &violations {
            self.rules.insert(violation.rule.id, violation.rule.requirement);
            self.line(
                violation.is_error(),
                place(violation.field.as_str()),
                &violation.to_string(),
                Some(violation.rule.id),
            );
        }
    }

    /// Adds `text` about a place, and the rule that it is about.
    fn line(&mut self, is_error: bool, (file, what, field, line): Place<'_>, text: &str, rule: Option<&str>) {
        self.errors += usize::from(is_error);
        let severity = if is_error { "error" } else { "warning" };
        // What the file has could look like another finding.
        let text = one_line(text);
        let mark = rule.map(|rule| format!(" [{rule}]")).unwrap_or_default();
        self.text.extend([format!("{severity}: {file}: {what}: {text}{mark}\n")]);
        self.values.push(json!({"severity": severity, "file": file, "resource": what, "message": text,
            "field": field, "line": line, "rule": rule}));
    }

    /// Prints the findings, and for programs the files that can't be read, which people see among
    /// the errors.
    fn print(&self, format: Format, unreadable: &[Unreadable]) -> ExitCode {
        let Self { text, values, rules, errors, resources, has_bundle, .. } = self;
        if *resources > 0 || !format.is_text() {
            let remark = if *has_bundle {
                String::new()
            } else {
                format!(" (without a release bundle: {UNCHECKED}; {BUNDLE_HINT})")
            };
            let summary = format!("{}, {}{remark}", count(*resources, "resource"), count(*errors, "error"));
            let unreadable: Vec<Value> =
                unreadable.iter().map(|one| json!({"file": one.name, "message": one.text})).collect();
            let value = if format == Format::Sarif {
                sarif::log(values, rules, &unreadable)
            } else {
                json!({"resources": resources, "errors": errors, "releaseBundle": has_bundle,
                    "findings": values, "unreadable": unreadable})
            };
            format.print(&format!("{text}{summary}\n"), &value);
        }
        if *errors == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// The violation of the first patch that can't be applied, unless `violations` has one of a patch;
/// or that the patches are not checked, since what they change is not known.
fn check_patches(
    releases: &ReleaseArgs,
    resource: &Knative,
    violations: &[Violation],
) -> Result<Option<Violation>, Remark> {
    let has_violation = violations.iter().any(|violation| violation.field.starts_with("spec.patches["));
    if resource.common().patches.is_empty() || has_violation {
        return Ok(None);
    }
    let unchecked = |why: String| Remark::new("spec.patches", format!("not checked: {why}"));
    match output::block_on(releases.render(resource)).map_err(unchecked)? {
        Ok(_) => Ok(None),
        Err(InputError::Render(RenderError::Patch(violation))) => Ok(Some(violation)),
        Err(why) => Err(unchecked(why.to_string())),
    }
}
