//! Cost of a release: memory, time to parse and to render. Prints medians and counts; asserts
//! nothing.
//!
//! `cargo bench -p knative-operator-tests --bench release`

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use knative_operator_objects::owner::Owner;
use knative_operator_objects::plan::Plan;
use knative_operator_release::{Bundle, Downloads, HostPolicy, Library, Release};
use knative_operator_render::Settings;
use knative_operator_rules as rules;
use knative_operator_shared::api::{Component, Knative};
use knative_operator_shared::version::Version;
use knative_operator_tests::patches;
use knative_operator_tests::releases::{self, Releases};
use serde_json::json;

/// Repetitions of each measurement.
const TIMES: usize = 200;

struct Case {
    name: &'static str,
    resource: Knative,
    version: Version,
}

impl Case {
    fn new(name: &'static str, component: Component, version: &str, spec: &serde_json::Value) -> Self {
        let mut object = json!({
            "apiVersion": "operator.knative.dev/v1beta1",
            "kind": component.kind(),
            "metadata": {"name": "a", "namespace": component.canonical(), "uid": "1"},
            "spec": spec,
        });
        object["spec"]["version"] = json!(version);
        let resource = rules::parse(component, &object).expect("the case is a valid resource");
        Self { name, resource, version: version.parse().expect("the case has a version") }
    }

    fn render(&self, release: &Release) -> usize {
        let objects =
            knative_operator_render::objects(&self.resource, &self.version, release.objects(), &Settings::default());
        Plan::new(Arc::new(objects.expect("the case renders")), &Owner::of(&self.resource, "1")).items().len()
    }
}

fn main() {
    knative_operator_runtime::install_crypto();
    let releases = releases::best();
    let patched = json!({"ingress": {"kourier": {"enabled": true}}, "patches": patches::twenty(&releases)});
    let Releases { dir, serving, eventing, .. } = releases;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime starts");
    let everything = json!({
        "high-availability": {"replicas": 3},
        "registry": {"default": "registry.example.com/${NAME}:v1", "override": {"activator": "a"}, "imagePullSecrets": [{"name": "s"}]},
        "workloads": [{"name": "activator", "labels": {"a": "b"}, "env": [{"container": "activator", "envVars": [{"name": "A", "value": "b"}]}]}],
        "resources": [{"container": "controller", "limits": {"cpu": "1"}}],
        "config": {"features": {"a": "b"}},
    });
    let kourier = json!({"ingress": {"kourier": {"enabled": true}}});
    let mut overridden = everything.clone();
    overridden["ingress"] = kourier["ingress"].clone();
    let cases = [
        Case::new("Serving with Kourier", Component::Serving, serving, &kourier),
        Case::new("Serving with Kourier, everything overridden", Component::Serving, serving, &overridden),
        Case::new("Eventing", Component::Eventing, eventing, &json!({})),
        Case::new("Eventing, everything overridden", Component::Eventing, eventing, &everything),
        Case::new("Serving with Kourier, twenty patches", Component::Serving, serving, &patched),
    ];

    println!("releases: {}", dir.display());
    let before = resident();
    let library = Library {
        bundle: Bundle::open(dir.clone()),
        downloads: Downloads::new(Duration::from_secs(1), HostPolicy::any()).expect("a client is built"),
        archive: None,
        keeps_installed: false,
    };
    let load =
        |case: &Case| runtime.block_on(library.release(&case.resource, &case.version)).expect("the release is there");
    let (first, second) = (load(&cases[0]), load(&cases[2]));
    let loaded = resident();
    println!(
        "resident memory: {before} KiB before, {loaded} KiB with {serving} of Serving and {eventing} of Eventing loaded"
    );
    drop((first, second));

    for component in Component::ALL {
        let version = if component == Component::Serving { serving } else { eventing };
        parse(&dir, component, version);
    }
    for case in &cases {
        let release = load(case);
        let objects = release.objects().count();
        let time = median(|| case.render(&release));
        let warnings = median(|| knative_operator_render::names(release.objects()).unmatched(&case.resource));
        println!(
            "render {}: {objects} objects in, {} out, {time:?}; names checked in {warnings:?}",
            case.name,
            case.render(&release)
        );
    }
    println!(
        "select a version: {:?}",
        median(|| knative_operator_release::select_version(&library.bundle, &cases[0].resource, false).is_ok())
    );
    println!("resident memory at the end: {} KiB", resident());
}

fn parse(dir: &Path, component: Component, version: &str) {
    let version: Version = version.parse().expect("it is a version");
    let path = Bundle::open(dir.to_owned()).release(component, &version);
    let cold = median(|| Bundle::open(dir.to_owned()).objects(&path));
    let bundle = Bundle::open(dir.to_owned());
    let cached = median(|| bundle.objects(&path));
    println!("parse {component} {version}: {cold:?} cold, {cached:?} cached");
}

fn median<T>(mut work: impl FnMut() -> T) -> Duration {
    let mut times: Vec<_> = (0..TIMES)
        .map(|_| {
            let started = Instant::now();
            drop(black_box(work()));
            started.elapsed()
        })
        .collect();
    times.sort();
    times[TIMES / 2]
}

/// Resident memory of this process, in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    line.and_then(|l| l.trim().strip_suffix(" kB")?.parse().ok()).unwrap_or_default()
}
