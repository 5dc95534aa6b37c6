//! `knative-operator render`: what would be applied, with no cluster at all.

use std::io::Read;
use std::process::ExitCode;

use knative_operator_shared::api::Knative;
use serde_json::{Value, json};

use super::{Output, Told, read, tell};
use crate::args::ReleaseArgs;
use crate::object::Shared;
use crate::release::{self, Library};
use crate::render::{self, Owner, Settings};
use crate::yaml;

/// Flags of `render`.
#[derive(Clone, Debug, clap::Args)]
pub struct RenderArgs {
    /// File with custom resources, YAML or JSON; - for stdin.
    #[arg(short = 'f', long, value_name = "FILE")]
    filename: String,
    /// How the objects are printed: a v1 List (json) or a stream of documents (yaml).
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    releases: ReleaseArgs,
}

/// Prints the objects in apply order, or says what is wrong and where.
pub fn run(args: &RenderArgs) -> ExitCode {
    tell(render(args))
}

fn render(args: &RenderArgs) -> Result<Told, String> {
    let from = if args.filename == "-" { "stdin" } else { &args.filename };
    let text = text(&args.filename).map_err(|e| format!("{from} can't be read: {e}"))?;
    let (resources, mut warnings) = read::resources(&text).map_err(|why| format!("{from}: {why}"))?;
    let library = args.releases.library().map_err(|e| e.to_string())?;
    let settings = args.releases.settings();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().map_err(|e| e.to_string())?;
    let mut objects = Vec::new();
    for resource in &resources {
        let about = |message: String| format!("{from}: {} {}: {message}", resource.component(), resource.name());
        let (rendered, told) = runtime.block_on(objects_of(&library, resource, &settings)).map_err(about)?;
        objects.extend(rendered);
        warnings.extend(told.into_iter().map(|w| format!("{} {}: {w}", resource.component(), resource.name())));
    }
    Ok(Told { text: print(&objects, args.output)?, warnings })
}

fn text(filename: &str) -> std::io::Result<String> {
    if filename != "-" {
        return std::fs::read_to_string(filename);
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    Ok(text)
}

/// The objects of `resource` in apply order, and warnings.
async fn objects_of(library: &Library, resource: &Knative, settings: &Settings) -> Result<(Vec<Shared>, Vec<String>), String> {
    let version = release::version(&library.bundle, resource).map_err(|e| format!("spec.version: {e}"))?;
    let release = library.release(resource, &version).await.map_err(|e| e.to_string())?;
    let plan = render::plan(resource, &version, release.objects(), &Owner::of(resource, ""), settings).map_err(|e| e.to_string())?;
    let mut warnings = render::unmatched(resource, release.objects());
    warnings.extend(release.warnings);
    Ok((plan.items.into_iter().map(|item| item.object).collect(), warnings))
}

fn print(objects: &[Shared], output: Output) -> Result<String, String> {
    match output {
        Output::Json => {
            let objects: Vec<&Value> = objects.iter().map(|o| &**o).collect();
            let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
            serde_json::to_string_pretty(&list).map(|text| text + "\n").map_err(|e| e.to_string())
        }
        Output::Yaml => {
            let documents = objects.iter().map(|o| yaml::write(&**o).map(|text| format!("---\n{text}")));
            documents.collect()
        }
    }
}
