//! The images of real nodes: the project's own, the programs of tests, and those of Knative, which
//! are built from its Go modules once.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use tokio::sync::OnceCell;

use crate::registry::{self, Registry};
use crate::{Result, releases, tools};

/// A number that changes when images are built in another way.
const FORMAT: u32 = 4;
/// Minor version of Knative.
const MINOR: &str = "1.22";
/// Images of Knative Serving, by the last part of their names in a release, and their commands.
const SERVING: [(&str, &str); 10] = [
    ("activator", "serving_cmd_activator"),
    ("autoscaler", "serving_cmd_autoscaler"),
    ("autoscaler-hpa", "serving_cmd_autoscaler-hpa"),
    ("controller", "serving_cmd_controller"),
    ("webhook", "serving_cmd_webhook"),
    // The sidecar, in the configuration and in what nodes pull in advance.
    ("queue-proxy", "serving_cmd_queue"),
    ("queue", "serving_cmd_queue"),
    ("migrate", "pkg_apiextensions_storageversion_cmd_migrate"),
    ("cleanup", "serving_pkg_cleanup_cmd_cleanup"),
    ("kourier", "net-kourier_cmd_kourier"),
];
/// Images of Knative Eventing, by the last part of their names in a release, and their commands.
const EVENTING: [(&str, &str); 11] = [
    ("controller", "eventing_cmd_controller"),
    ("webhook", "eventing_cmd_webhook"),
    ("jobsink", "eventing_cmd_jobsink"),
    ("mtping", "eventing_cmd_mtping"),
    ("requestreply", "eventing_cmd_requestreply"),
    ("channel_controller", "eventing_cmd_in_memory_channel_controller"),
    ("channel_dispatcher", "eventing_cmd_in_memory_channel_dispatcher"),
    ("filter", "eventing_cmd_broker_filter"),
    ("ingress", "eventing_cmd_broker_ingress"),
    ("mtchannel_broker", "eventing_cmd_mtchannel_broker"),
    ("migrate", "pkg_apiextensions_storageversion_cmd_migrate"),
];
/// Programs of this machine in the image of Envoy, for the hooks of its Pod.
const SHELL: [&str; 2] = ["/bin/sh", "/bin/sleep"];

/// The registry of this process with all images. They are pushed once.
pub async fn registry() -> Result<&'static Registry> {
    registry_with(None).await
}

/// Like [`registry`], with the images of Serving in the minor version `other`, too. The first call
/// in a process decides.
pub async fn registry_with(other: Option<&'static str>) -> Result<&'static Registry> {
    static REGISTRY: OnceCell<Registry> = OnceCell::const_new();
    let start = move || async move { tokio::task::spawn_blocking(move || start(other)).await? };
    REGISTRY.get_or_try_init(start).await
}

fn start(other: Option<&str>) -> Result<Registry> {
    let layouts = registry::layouts()?;
    let registry = Registry::open(Some(&prepare(other)?))?;
    registry.push_layouts(&layouts)?;
    registry.push_files(&releases::best().dir.canonicalize()?, "releases:test")?;
    Ok(registry)
}

/// Folder with the images that change with the versions of tools only, as data of a registry; also
/// with those of Serving in the minor version `other`. They are built once.
pub fn prepare(other: Option<&str>) -> Result<PathBuf> {
    let other = match other {
        Some(minor) => Some((minor, tools::provided(&format!("knative-{minor}"))?.canonicalize()?)),
        None => None,
    };
    let knative = tools::provided(&format!("knative-{MINOR}"))?.canonicalize()?;
    let (envoy, node) = (tools::provided("envoy")?.canonicalize()?, tools::node()?);
    let programs = ["hello", "pause"].map(|name| node.join(name));
    // The folders of the store are named by their contents.
    let store = knative.ancestors().find(|folder| folder.ends_with("store")).ok_or("no store of tools")?;
    let name_of = |path: &Path| -> Result<String> {
        let inside =
            path.canonicalize()?.strip_prefix(store)?.components().next().map(|name| name.as_os_str().to_owned());
        Ok(inside.ok_or("no name")?.to_string_lossy().into_owned())
    };
    let mut key = vec![name_of(&knative)?, name_of(&envoy)?, name_of(&programs[0])?];
    if let Some((_, programs)) = &other {
        key.push(name_of(programs)?);
    }
    let target = store.join(format!("images-{FORMAT}-{}", key.join("+")));
    if target.is_dir() {
        return Ok(target);
    }
    let work = tools::folder("knative-images-")?;
    let registry = Registry::empty()?;
    for (repository, images) in [("knative", &SERVING[..]), ("eventing", &EVENTING)] {
        push(&registry, &knative, work.path(), (repository, MINOR), images)?;
    }
    if let Some((minor, programs)) = &other {
        push(&registry, programs, &work.path().join(minor), ("knative", *minor), &SERVING)?;
    }
    for (name, program) in ["hello", "pause"].iter().zip(&programs) {
        let entrypoint = format!("/{name}");
        let root = root(&work.path().join(name), &[(program, &entrypoint)])?;
        registry.push_program(&root, &format!("{name}:1"), &entrypoint)?;
    }
    let (path, shell) = ("/usr/local/bin/envoy", SHELL.map(Path::new));
    let mut files: BTreeSet<PathBuf> = shell.iter().map(|file| (*file).to_owned()).collect();
    for program in shell.iter().copied().chain([envoy.as_path()]) {
        files.extend(libraries(program)?);
    }
    let targets: Vec<(PathBuf, String)> = files.iter().map(|file| (file.clone(), file.display().to_string())).collect();
    let mut all: Vec<(&Path, &str)> = targets.iter().map(|(file, target)| (file.as_path(), target.as_str())).collect();
    all.push((&envoy, path));
    let root = root(&work.path().join("envoy"), &all)?;
    registry.push_program(&root, &format!("knative/envoy:{MINOR}"), path)?;
    // Another process may do the same at the same time.
    let own = target.with_extension(std::process::id().to_string());
    registry.save(&own)?;
    if let Err(error) = std::fs::rename(&own, &target) {
        std::fs::remove_dir_all(&own)?;
        if !target.is_dir() {
            return Err(format!("{}: {error}", target.display()).into());
        }
    }
    Ok(target)
}

/// Pushes the images of another `minor` version to `registry`.
pub fn push_minor(registry: &Registry, minor: &str) -> Result<()> {
    let programs = tools::provided(&format!("knative-{minor}"))?.canonicalize()?;
    let work = tools::folder("knative-images-")?;
    push(registry, &programs, work.path(), ("knative", minor), &SERVING)?;
    push(registry, &programs, work.path(), ("eventing", minor), &EVENTING)
}

/// Pushes `images` of the commands in `programs` as `REPOSITORY/NAME:TAG`.
fn push(
    registry: &Registry,
    programs: &Path,
    work: &Path,
    (repository, tag): (&str, &str),
    images: &[(&str, &str)],
) -> Result<()> {
    for (name, command) in images {
        let entrypoint = format!("/ko-app/{name}");
        let root = root(&work.join(repository).join(name), &[(&programs.join(command), &entrypoint)])?;
        registry.push_program(&root, &format!("{repository}/{name}:{tag}"), &entrypoint)?;
    }
    Ok(())
}

/// A root file system in `folder` with `files`: their places on this machine and in the image.
pub(super) fn root(folder: &Path, files: &[(&Path, &str)]) -> Result<PathBuf> {
    std::fs::create_dir_all(folder.join("etc"))?;
    std::fs::write(folder.join("etc/passwd"), "root:x:0:0::/:\nnonroot:x:65532:65532::/:\n")?;
    for (file, target) in files {
        let place = folder.join(target.trim_start_matches('/'));
        std::fs::create_dir_all(place.parent().ok_or("no folder")?)?;
        symlink(file.canonicalize()?, place)?;
    }
    Ok(folder.to_owned())
}

/// The shared libraries of `program`, and the loader.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output().map_err(|error| format!("ldd: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let paths = text.split_whitespace().filter(|word| word.starts_with('/'));
    Ok(paths.map(PathBuf::from).collect())
}
