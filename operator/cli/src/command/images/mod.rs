//! `knative-operator images`: lists the images of installations and of the operator, copies them to
//! a mirror, and prints the settings with which they come from there.

pub mod source;

use std::process::ExitCode;

use knative_operator_objects::Owner;
use knative_operator_objects::plan::Plan;
use knative_operator_release::{HostPolicy, Library};
use knative_operator_render::image_places;
use knative_operator_shared::api::Knative;
use knative_operator_shared::version::Version;
use knative_operator_shared::yaml;
use serde_json::{Value, json};

use self::source::{Source, sources};
use super::files::{File, FileArgs};
use super::kind_arg::kind_among;
use super::output::{self, CommandOutput, finish};
use super::read;
use super::release_args::{InputError, ReleaseArgs, knative_version};
use crate::images::{Found, InvalidImage, Listing, Mirror, MirrorSettings, differences};

/// The values of the chart, which name the operator's own images.
const CHART: &str = include_str!("../../../../../charts/knative-operator/values.yaml");

/// Flags of `images`.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("filename", |filename| filename.required(false)))]
pub struct ImagesArgs {
    #[command(flatten)]
    files: FileArgs,
    /// Version instead of that in each resource, such as 1.23.
    #[arg(long, value_name = "VERSION", value_parser = knative_version)]
    version: Option<String>,
    /// Lists the images of resources of this kind only, and not those of the operator itself.
    #[arg(long, ignore_case = true, value_parser = kind_among(["KnativeServing", "KnativeEventing"]))]
    kind: Option<&'static str>,
    /// Registry with copies of the images, and the path below which it has them, such as
    /// registry.example.com/knative. Each image keeps its own registry and path below it.
    #[arg(long, value_name = "HOST/PATH",
        required_if_eq_any([("output", "crane"), ("output", "skopeo"), ("output", "registry")]))]
    mirror: Option<Mirror>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    releases: ReleaseArgs,
}

/// Output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// A line for each image; with --mirror, for its name there.
    #[default]
    Text,
    /// Image, digest, name in the mirror and places of each image, as one JSON document.
    Json,
    /// The same as YAML.
    Yaml,
    /// Commands of crane that copy each image to the mirror.
    Crane,
    /// Commands of skopeo that copy each image to the mirror.
    Skopeo,
    /// JSON merge patches, as YAML, with which the resources take all images from the mirror.
    Registry,
}

/// Prints the images, or the errors.
pub fn run(args: &ImagesArgs) -> ExitCode {
    finish(output::block_on(list(args)).unwrap_or_else(Err))
}

async fn list(args: &ImagesArgs) -> Result<CommandOutput, String> {
    let (sources, mut warnings) = args.sources()?;
    let library = args.releases.library(HostPolicy::any()).map_err(|error| error.to_string())?;
    let renderer = Renderer { library, releases: &args.releases };
    let (mut listing, mut documents): (_, Vec<Value>) = (Listing::default(), Vec::new());
    let text = |error: InvalidImage| error.to_string();
    for source in &sources {
        for (field, job) in &source.gates {
            let found = Found { places: image_places(job, source.component, ""), object: job.clone() };
            listing.add(&format!("{} {field}", source.fleet_name()), &[found]).map_err(text)?;
        }
        let installation = renderer.render(&source.what, &source.resource()?).await?;
        listing.add(&source.what, &installation.objects).map_err(text)?;
        let mut others = Vec::new();
        for (what, patch) in source.overrides() {
            let other = renderer.render(&what, &source.with(&[patch])?).await?;
            listing.add(&what, &other.objects).map_err(text)?;
            others.push((what, patch, other));
        }
        if let Some(mirror) = args.mirror.as_ref().filter(|_| args.output == Format::Registry) {
            let spec = renderer.settings(source, &installation, mirror).await?;
            renderer.check_overrides(source, &spec, &others, mirror).await?;
            warnings.extend(source.beside_settings());
            add_document(&mut documents, source.document(&spec))?;
        }
        warnings.extend(installation.warnings);
    }
    if let Some(mirror) = &args.mirror {
        warnings.extend(listing.mirrored(mirror).map(|image| {
            format!(
                "{image} is already in {mirror}, and stays as it is: for another version, give the resource without \
                 the settings that -o registry printed"
            )
        }));
    }
    if args.kind.is_none() {
        own_images()?.into_iter().for_each(|(image, value)| listing.add_of_chart(image, value));
    }
    Ok(CommandOutput { text: args.print(&listing, &documents)?, warnings, is_data: true })
}

impl ImagesArgs {
    /// The resources, and warnings.
    fn sources(&self) -> Result<(Vec<Source>, Vec<String>), String> {
        let (mut all, mut warnings) =
            if self.files.is_empty() { sources(&read::default_resources())? } else { Default::default() };
        for File { name, text } in self.files.read_all()? {
            let found = sources(&text).map_err(|why| format!("{name}: {why}"))?;
            all.extend(found.0);
            warnings.extend(found.1);
        }
        all.retain(|source| self.kind.is_none_or(|kind| source.component.kind() == kind));
        if all.is_empty() {
            let kinds = self.kind.unwrap_or("KnativeServing, KnativeEventing or KnativeFleet");
            return Err(format!("{}: there is no {kinds}", self.files.names()));
        }
        if let Some(version) = &self.version {
            all.iter_mut().for_each(|source| source.set_version(version));
        }
        Ok((all, warnings))
    }

    fn print(&self, listing: &Listing, documents: &[Value]) -> Result<String, String> {
        let mirror = self.mirror.as_ref();
        Ok(match (self.output, mirror) {
            (Format::Json, _) => output::Format::Json.document(&listing.json(mirror)),
            (Format::Yaml, _) => output::Format::Yaml.document(&listing.json(mirror)),
            (Format::Crane, Some(mirror)) => listing.copies("crane copy", "", mirror).map_err(|e| e.to_string())?,
            (Format::Skopeo, Some(mirror)) => {
                let command = "skopeo copy --all --preserve-digests";
                listing.copies(command, "docker://", mirror).map_err(|e| e.to_string())?
            }
            (Format::Registry, _) => {
                let documents = documents.iter().map(|one| yaml::write(one).map(|text| format!("---\n{text}")));
                documents.collect::<Result<String, yaml::YamlError>>().map_err(|error| error.to_string())?
            }
            // Those that copy need the flag.
            (Format::Text | Format::Crane | Format::Skopeo, _) => listing.text(mirror),
        })
    }
}

/// Adds `document` to `documents`: to that of the same fleet, if there is one. The error names a
/// second resource with the same name: settings of one don't fit another.
fn add_document(documents: &mut Vec<Value>, document: Value) -> Result<(), String> {
    let is_same = |one: &Value| ["kind", "metadata"].iter().all(|field| one[*field] == document[*field]);
    let Some(one) = documents.iter_mut().find(|one| is_same(one)) else {
        documents.push(document);
        return Ok(());
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let has = |value: &Value, word: &str| value["spec"].get(word).is_some();
    let words = ["serving", "eventing"];
    if document["kind"] != "KnativeFleet" || words.iter().any(|word| has(one, word) && has(&document, word)) {
        let [namespace, name] = ["namespace", "name"].map(|field| text(&document["metadata"][field]));
        let kind = text(&document["kind"]);
        return Err(format!("there are several {kind}s {namespace}/{name}: print the settings of each by itself"));
    }
    json_patch::merge(one, &document);
    Ok(())
}

/// What a resource installs.
struct RenderedResource {
    version: Version,
    objects: Vec<Found>,
    warnings: Vec<String>,
}

struct Renderer<'a> {
    library: Library,
    releases: &'a ReleaseArgs,
}

impl Renderer<'_> {
    /// Renders `resource`, which is called `what` in messages.
    async fn render(&self, what: &str, resource: &Knative) -> Result<RenderedResource, String> {
        let failed = |error: InputError| format!("{what}: {error}");
        let version = knative_operator_release::select_version(&self.library.bundle, resource, false);
        let version = version.map_err(|error| failed(error.into()))?;
        let rendered = self.releases.render_version(&self.library, resource, &version).await;
        let (rendered, release) = rendered.map_err(failed)?;
        let unmatched = knative_operator_render::names(release.objects()).unmatched(resource);
        let warnings = unmatched.iter().map(ToString::to_string).chain(release.warnings);
        let warnings = warnings.map(|warning| format!("{what}: {warning}")).collect();
        let plan = Plan::new(rendered.into(), &Owner::of(resource, ""));
        let (component, text) = (resource.component(), version.to_string());
        let found = |object: Value| Found { places: image_places(&object, component, &text), object };
        let objects = plan.items().iter().map(|item| found(item.object.parse())).collect();
        Ok(RenderedResource { version, objects, warnings })
    }

    /// The objects of `source` with `patches`.
    async fn objects(&self, source: &Source, patches: &[&Value]) -> Result<Vec<Value>, String> {
        let installation = self.render(&source.what, &source.with(patches)?).await?;
        Ok(installation.objects.into_iter().map(|found| found.object).collect())
    }

    /// The JSON merge patch of the spec of `source` with which `installation` has all images of
    /// `mirror`, and nothing else changes. It is tried.
    async fn settings(
        &self,
        source: &Source,
        installation: &RenderedResource,
        mirror: &Mirror,
    ) -> Result<Value, String> {
        let (resource, objects) = (source.resource()?, &installation.objects);
        let mut settings = MirrorSettings::of(&resource, &installation.version, objects, mirror);
        let mut spec = settings.merge_patch(&resource);
        let mut rendered = self.objects(source, &[&json!({"spec": spec})]).await?;
        if settings.add_patches(objects, &rendered, mirror) {
            spec = settings.merge_patch(&resource);
            rendered = self.objects(source, &[&json!({"spec": spec})]).await?;
        }
        let differences = differences(objects, &rendered, mirror);
        if differences.is_empty() {
            return Ok(spec);
        }
        Err(format!(
            "{}: no settings give it all images of the mirror and nothing else: {}",
            source.what,
            differences.join("; ")
        ))
    }

    /// Checks that the settings in `spec` fit clusters with each of `overrides`, too.
    async fn check_overrides(
        &self,
        source: &Source,
        spec: &Value,
        overrides: &[(String, &Value, RenderedResource)],
        mirror: &Mirror,
    ) -> Result<(), String> {
        for (what, patch, installation) in overrides {
            let rendered = self.objects(source, &[&json!({"spec": spec}), *patch]).await?;
            let differences = differences(&installation.objects, &rendered, mirror);
            if !differences.is_empty() {
                return Err(format!(
                    "{what}: its clusters have other images than the template, such as {}; remove the override from \
                     the file, and print its settings from a {} that has it",
                    differences.iter().take(2).cloned().collect::<Vec<_>>().join("; "),
                    source.component.kind()
                ));
            }
        }
        Ok(())
    }
}

/// The operator's own images, and the values of the chart that name them.
fn own_images() -> Result<Vec<(String, String)>, String> {
    let values: Value = yaml::parse(CHART).map_err(|error| error.to_string())?;
    let image = |part: &str| {
        let values = &values["knative_operator"][part];
        let text = |key: &str| values[key].as_str().unwrap_or_default();
        let reference = match (text("tag"), text("digest")) {
            ("", "") => format!("{}:{}", text("image"), env!("CARGO_PKG_VERSION")),
            ("", digest) => format!("{}@{digest}", text("image")),
            (tag, _) => format!("{}:{tag}", text("image")),
        };
        (reference, format!("knative_operator.{part}.image"))
    };
    Ok(["knative_operator", "operator_webhook"].map(image).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_images_are_those_of_the_chart() {
        let version = env!("CARGO_PKG_VERSION");
        let image = |name: &str| format!("ghcr.io/knative-operator-rs/{name}:{version}");
        let expected = [
            (image("knative-operator"), "knative_operator.knative_operator.image".to_owned()),
            (image("knative-operator-webhook"), "knative_operator.operator_webhook.image".to_owned()),
        ];
        assert_eq!(own_images().unwrap(), expected);
    }

    #[test]
    fn components_of_a_fleet_share_a_document() {
        let of =
            |kind: &str, spec: Value| json!({"kind": kind, "metadata": {"name": "f", "namespace": "n"}, "spec": spec});
        let mut documents = Vec::new();
        let mut add = |kind: &str, spec: Value| add_document(&mut documents, of(kind, spec));
        add("KnativeFleet", json!({"serving": {"spec": {"version": "1"}}})).unwrap();
        add("KnativeFleet", json!({"eventing": {"spec": {"version": "2"}}})).unwrap();
        add("KnativeServing", json!({"version": "3"})).unwrap();
        // Those of another cluster may have the same name.
        for (kind, spec) in [("KnativeServing", json!({})), ("KnativeFleet", json!({"serving": {}}))] {
            let error = add(kind, spec).unwrap_err();
            assert_eq!(error, format!("there are several {kind}s n/f: print the settings of each by itself"));
        }
        let both = json!({"serving": {"spec": {"version": "1"}}, "eventing": {"spec": {"version": "2"}}});
        assert_eq!(documents, [of("KnativeFleet", both), of("KnativeServing", json!({"version": "3"}))]);
    }
}
