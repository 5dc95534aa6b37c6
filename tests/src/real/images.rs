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
const FORMAT: u32 = 5;
/// Minor version of Knative.
const MINOR: &str = "1.22";
/// Images of Knative Serving, by the last part of their names in a release. `queue` is the sidecar
/// in what nodes pull in advance.
const SERVING: [&str; 10] = [
    "activator",
    "autoscaler",
    "autoscaler-hpa",
    "controller",
    "webhook",
    "queue-proxy",
    "queue",
    "migrate",
    "cleanup",
    "kourier",
];
/// Images of Knative Eventing, by the last part of their names in a release.
const EVENTING: [&str; 11] = [
    "controller",
    "webhook",
    "jobsink",
    "mtping",
    "requestreply",
    "channel_controller",
    "channel_dispatcher",
    "filter",
    "ingress",
    "mtchannel_broker",
    "migrate",
];
/// Programs of this machine in the image of Envoy, for the hooks of its Pod.
const SHELL: [&str; 2] = ["/bin/sh", "/bin/sleep"];

/// The registry of this process with all images but those of Knative Eventing, pushed once.
pub async fn registry() -> Result<&'static Registry> {
    static REGISTRY: OnceCell<Registry> = OnceCell::const_new();
    let start = || async { tokio::task::spawn_blocking(start).await? };
    REGISTRY.get_or_try_init(start).await
}

fn start() -> Result<Registry> {
    let layouts = registry::layouts()?;
    let registry = Registry::open(Some(&prepare()?))?;
    registry.push_layouts(&layouts)?;
    registry.push_files(&releases::best().dir.canonicalize()?, "releases:test")?;
    Ok(registry)
}

/// The same registry, with the images of Knative Eventing.
pub async fn registry_with_eventing() -> Result<&'static Registry> {
    static ADDED: OnceCell<()> = OnceCell::const_new();
    let registry = registry().await?;
    let add = || async move { tokio::task::spawn_blocking(move || add_eventing(registry)).await? };
    ADDED.get_or_try_init(add).await?;
    Ok(registry)
}

fn add_eventing(registry: &Registry) -> Result<()> {
    registry.add(&prepare_eventing()?)
}

/// The same registry, with the images of Knative Serving in the minor version `other`, too.
pub async fn registry_with(other: Option<&'static str>) -> Result<&'static Registry> {
    static ADDED: OnceCell<()> = OnceCell::const_new();
    let registry = registry().await?;
    if let Some(minor) = other {
        let add = || async move { tokio::task::spawn_blocking(move || add_serving(registry, minor)).await? };
        ADDED.get_or_try_init(add).await?;
    }
    Ok(registry)
}

fn add_serving(registry: &Registry, minor: &str) -> Result<()> {
    let knative = programs("knative", minor)?;
    let fill = |registry: &Registry, work: &Path| push(registry, &knative, work, ("knative", minor), &SERVING);
    registry.add(&kept(&[&knative], fill)?)
}

/// Folder with the images that change with the versions of tools only, as data of a registry. They
/// are built once.
pub fn prepare() -> Result<PathBuf> {
    let knative = programs("knative", MINOR)?;
    let (envoy, node) = (tools::provided("envoy")?.canonicalize()?, tools::node()?);
    let (hello, pause) = (node.join("hello"), node.join("pause"));
    kept(&[&knative, &envoy, &hello], |registry, work| {
        push(registry, &knative, work, ("knative", MINOR), &SERVING)?;
        for (name, program) in [("hello", &hello), ("pause", &pause)] {
            let entrypoint = format!("/{name}");
            let root = root(&work.join(name), &[(program, &entrypoint)])?;
            registry.push_program(&root, &format!("{name}:1"), &entrypoint)?;
        }
        push_envoy(registry, &envoy, work)
    })
}

/// The same for the images of Knative Eventing.
pub fn prepare_eventing() -> Result<PathBuf> {
    let eventing = programs("eventing", MINOR)?;
    kept(&[&eventing], |registry, work| push(registry, &eventing, work, ("eventing", MINOR), &EVENTING))
}

/// Folder with the programs of a component of Knative.
fn programs(component: &str, minor: &str) -> Result<PathBuf> {
    Ok(tools::provided(&format!("{component}-{minor}"))?.canonicalize()?)
}

/// Folder of the store with the images that `fill` makes of `parts`, which are in the store, too.
fn kept(parts: &[&Path], fill: impl FnOnce(&Registry, &Path) -> Result<()>) -> Result<PathBuf> {
    let first = parts.first().ok_or("no parts")?.canonicalize()?;
    let store = first.ancestors().find(|folder| folder.ends_with("store")).ok_or("no store of tools")?;
    // The folders of the store are named by their contents.
    let name_of = |path: &&Path| -> Result<String> {
        let inside =
            path.canonicalize()?.strip_prefix(store)?.components().next().map(|name| name.as_os_str().to_owned());
        Ok(inside.ok_or("no name")?.to_string_lossy().into_owned())
    };
    let key = parts.iter().map(name_of).collect::<Result<Vec<_>>>()?.join("+");
    let target = store.join(format!("images-{FORMAT}-{key}"));
    place(&target, |new| {
        let work = tools::folder("knative-images-")?;
        let registry = Registry::empty()?;
        fill(&registry, work.path())?;
        registry.save(new)
    })?;
    Ok(target)
}

/// Makes sure that there is a folder `target`: complete, as `fill` writes it to its argument, which
/// does not exist. Another process may do the same at the same time, or have been interrupted.
fn place(target: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if target.is_dir() {
        return Ok(());
    }
    let own = tempfile::Builder::new().prefix(".images-").tempdir_in(target.parent().ok_or("no folder")?)?;
    let new = own.path().join("new");
    fill(&new)?;
    match std::fs::rename(&new, target) {
        Err(error) if !target.is_dir() => Err(format!("{}: {error}", target.display()).into()),
        _ => Ok(()),
    }
}

/// Pushes the image of Envoy, with the programs of this machine that its hooks run.
fn push_envoy(registry: &Registry, envoy: &Path, work: &Path) -> Result<()> {
    let (path, shell) = ("/usr/local/bin/envoy", SHELL.map(Path::new));
    let mut files: BTreeSet<PathBuf> = shell.iter().map(|file| (*file).to_owned()).collect();
    for program in shell.iter().copied().chain([envoy]) {
        files.extend(libraries(program)?);
    }
    let targets: Vec<(PathBuf, String)> = files.iter().map(|file| (file.clone(), file.display().to_string())).collect();
    let mut all: Vec<(&Path, &str)> = targets.iter().map(|(file, target)| (file.as_path(), target.as_str())).collect();
    all.push((envoy, path));
    let root = root(&work.join("envoy"), &all)?;
    registry.push_program(&root, &format!("knative/envoy:{MINOR}"), path)
}

/// Pushes the images of another `minor` version to `registry`.
pub fn push_minor(registry: &Registry, minor: &str) -> Result<()> {
    let work = tools::folder("knative-images-")?;
    push(registry, &programs("knative", minor)?, work.path(), ("knative", minor), &SERVING)?;
    push(registry, &programs("eventing", minor)?, work.path(), ("eventing", minor), &EVENTING)
}

/// Pushes `images` of the commands in `programs` as `REPOSITORY/NAME:TAG`.
fn push(
    registry: &Registry,
    programs: &Path,
    work: &Path,
    (repository, tag): (&str, &str),
    images: &[&str],
) -> Result<()> {
    for name in images {
        let command = if *name == "queue-proxy" { "queue" } else { *name };
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

#[cfg(test)]
mod tests {
    use super::*;

    fn write(text: &'static str) -> impl FnOnce(&Path) -> Result<()> {
        move |folder: &Path| {
            std::fs::create_dir(folder)?;
            Ok(std::fs::write(folder.join("data"), text)?)
        }
    }

    #[test]
    fn kept_images_are_complete() {
        let store = tempfile::tempdir().unwrap();
        let target = store.path().join("images-1-knative-1.22-a+envoy-b");
        // Of a process with this number that was killed.
        let left = target.with_extension(std::process::id().to_string());
        std::fs::create_dir(&left).unwrap();
        let failed = place(&target, |folder| {
            write("a part")(folder)?;
            Err("no space".into())
        });
        assert!(failed.is_err() && !target.exists());
        // Another process is faster.
        let second = |folder: &Path| {
            write("second")(folder)?;
            place(&target, write("first"))
        };
        place(&target, second).unwrap();
        assert_eq!(std::fs::read_to_string(target.join("data")).unwrap(), "first");
        place(&target, |_| Err("it is there".into())).unwrap();
        assert_eq!(std::fs::read_dir(store.path()).unwrap().count(), 2, "the images, and what was left");
        assert_eq!(std::fs::read_dir(&left).unwrap().count(), 0);
    }
}
