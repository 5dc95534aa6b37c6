//! `knative-operator render`: what would be applied, with no cluster at all.

use std::io::Read;
use std::process::ExitCode;
use std::sync::Arc;

use knative_operator_shared::api::Knative;
use serde_json::{Value, json};

use super::{Output, Told, read, tell};
use crate::args::ReleaseArgs;
use crate::owner::Owner;
use crate::plan::Plan;
use crate::release;
use crate::render;
use crate::yaml;

/// Where custom resources and their releases come from.
#[derive(Clone, Debug, clap::Args)]
pub struct Source {
    /// File with custom resources, YAML or JSON; - for stdin.
    #[arg(short = 'f', long, value_name = "FILE")]
    filename: String,
    #[command(flatten)]
    releases: ReleaseArgs,
}

/// Flags of `render`.
#[derive(Clone, Debug, clap::Args)]
pub struct RenderArgs {
    #[command(flatten)]
    source: Source,
    /// How the objects are printed: a v1 List (json) or a stream of documents (yaml).
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// Prints the objects in apply order, or says what is wrong and where.
pub fn run(args: &RenderArgs) -> ExitCode {
    tell(render(args))
}

fn render(args: &RenderArgs) -> Result<Told, String> {
    let (resources, mut warnings) = args.source.resources()?;
    let runtime = super::runtime()?;
    let mut objects: Vec<Value> = Vec::new();
    for resource in &resources {
        let (plan, told) = runtime.block_on(args.source.plan(resource, ""))?;
        objects.extend(plan.items().iter().map(|item| plan.open(item)));
        warnings.extend(told);
    }
    Ok(Told { text: print(&objects, args.output)?, warnings })
}

impl Source {
    /// What the file is called.
    pub fn from(&self) -> &str {
        if self.filename == "-" { "stdin" } else { &self.filename }
    }

    /// The custom resources in the file, and warnings.
    pub fn resources(&self) -> Result<(Vec<Knative>, Vec<String>), String> {
        read::resources(&self.text()?).map_err(|why| format!("{}: {why}", self.from()))
    }

    /// What is in the file.
    pub fn text(&self) -> Result<String, String> {
        let mut text = String::new();
        let read = match self.filename.as_str() {
            "-" => std::io::stdin().read_to_string(&mut text).map(|_| text),
            file => std::fs::read_to_string(file),
        };
        read.map_err(|e| format!("{} can't be read: {e}", self.from()))
    }

    /// Where the release bundle is.
    pub fn bundle(&self) -> &std::path::Path {
        &self.releases.releases
    }

    /// The plan of `resource`, whose anchor has the uid `anchor`, and warnings.
    pub async fn plan(&self, resource: &Knative, anchor: &str) -> Result<(Plan, Vec<String>), String> {
        let about =
            |message: String| format!("{}: {} {}: {message}", self.from(), resource.component(), resource.name());
        let library = self.releases.library().map_err(|e| e.to_string())?;
        let version = release::version(&library.bundle, resource).map_err(|e| about(format!("spec.version: {e}")))?;
        let release = library.release(resource, &version).await.map_err(|e| about(e.to_string()))?;
        let objects = render::objects(resource, &version, release.objects(), &self.releases.settings());
        let plan = Plan::new(Arc::new(objects.map_err(|e| about(e.to_string()))?), &Owner::of(resource, anchor));
        let unmatched = render::names(release.objects()).unmatched(resource);
        let warnings = unmatched.iter().map(ToString::to_string).chain(release.warnings);
        Ok((plan, warnings.map(|w| format!("{} {}: {w}", resource.component(), resource.name())).collect()))
    }
}

fn print(objects: &[Value], output: Output) -> Result<String, String> {
    match output {
        Output::Json => {
            let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
            serde_json::to_string_pretty(&list).map(|text| text + "\n").map_err(|e| e.to_string())
        }
        Output::Yaml => objects.iter().map(|o| yaml::write(o).map(|text| format!("---\n{text}"))).collect(),
    }
}
