//! `knative-operator render`: prints the objects that would be applied, without a cluster.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::files::{FileArgs, FileResource};
use super::output::{self, CommandOutput, Format, finish};
use super::release_args::ReleaseArgs;

/// Flags of `render`.
#[derive(Clone, Debug, clap::Args)]
pub struct RenderArgs {
    #[command(flatten)]
    files: FileArgs,
    #[command(flatten)]
    releases: ReleaseArgs,
    /// Output format: a v1 List (json) or a stream of documents (yaml).
    #[arg(short, long, value_parser = Format::among(&[Format::Yaml, Format::Json]), default_value = "yaml")]
    output: Format,
    /// Treats unknown fields as errors.
    #[arg(long)]
    strict: bool,
}

/// Prints the objects in apply order, or the errors.
pub fn run(args: &RenderArgs) -> ExitCode {
    finish(render(args))
}

fn render(args: &RenderArgs) -> Result<CommandOutput, String> {
    let (resources, mut warnings) = args.files.resources(None, args.strict)?;
    let runtime = output::runtime()?;
    let mut objects: Vec<Value> = Vec::new();
    for FileResource { file, resource } in &resources {
        let plan = runtime.block_on(args.releases.plan(resource, ""));
        let (plan, own_warnings) = plan.map_err(|why| format!("{file}: {why}"))?;
        objects.extend(plan.items().iter().map(|item| plan.rendered_object_of(item)));
        warnings.extend(own_warnings);
    }
    Ok(CommandOutput { text: print(&objects, args.output), warnings, is_data: true })
}

fn print(objects: &[Value], format: Format) -> String {
    if format == Format::Json {
        return format.document(&json!({"apiVersion": "v1", "kind": "List", "items": objects}));
    }
    objects.iter().map(|object| format.next_document(object)).collect()
}
