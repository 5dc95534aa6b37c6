//! Paths of binaries.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use tempfile::TempDir;

use crate::{Result, outside};

pub use crate::project;

/// The script that provides tools.
const INSTALL: &str = "tests/tools/install.sh";
/// Arguments of `helm template` and `helm lint`: without a cluster, Helm assumes a version of
/// Kubernetes of its own. This is the first one that the chart supports.
pub const OFFLINE: [&str; 2] = ["--kube-version", "1.33"];

/// A binary of the workspace, in the folder of the running one.
pub fn binary(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let found = own.ancestors().skip(1).take(2).map(|dir| dir.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| format!("{name} is not built: run `cargo build --workspace` first").into())
}

/// The official credential plugins.
pub const OFFICIAL_PLUGINS: [&str; 2] = ["secretreader-plugin", "kubeconfig-secretreader-plugin"];

/// Puts the official credential plugins into `folder`, as their published images have them:
/// `/bin/NAME`.
pub fn official_plugins(folder: &Path) -> Result<()> {
    let programs = folder.join("bin");
    std::fs::create_dir_all(&programs)?;
    for plugin in OFFICIAL_PLUGINS {
        let target = programs.join(plugin);
        if !target.exists() {
            std::os::unix::fs::symlink(control_plane(plugin)?, target)?;
        }
    }
    Ok(())
}

/// An example of a library of the workspace.
pub fn example(name: &str) -> Result<PathBuf> {
    binary(&format!("examples/{name}")).map_err(|error| format!("{error} with --examples").into())
}

/// A binary of the control plane, from `tests/tools/install.sh`.
pub fn control_plane(name: &str) -> Result<PathBuf> {
    static FOLDER: LazyLock<std::result::Result<PathBuf, String>> =
        LazyLock::new(|| outside::folder_of(INSTALL, None).map_err(|error| error.to_string()));
    Ok(FOLDER.clone()?.join(name))
}

/// Whether the control plane has the version in `tests/tools/control-plane`: nobody asked for
/// another one.
pub fn is_default_kubernetes() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !["KUBERNETES", "KUBEBUILDER_ASSETS"].into_iter().any(is_set)
}

/// Folder with the programs of a real node: kubelet, containerd, and others.
pub fn node() -> Result<PathBuf> {
    static FOLDER: LazyLock<std::result::Result<PathBuf, String>> =
        LazyLock::new(|| outside::folder_of(INSTALL, Some("node")).map_err(|error| error.to_string()));
    Ok(FOLDER.clone()?)
}

/// A program of the Go operator, built from its module: `operator`, `webhook`, `render`.
pub fn go_operator(program: &str) -> Result<PathBuf> {
    Ok(provided("go-operator")?.join(program))
}

/// Folder of the Go module `knative.dev/operator`: the Go operator's chart and CRDs (`config`), and
/// Knative's releases (`cmd/operator/kodata`).
pub fn go_operator_module() -> Result<PathBuf> {
    provided("go-operator-module")
}

/// Folder of the Go module `k8s.io/kubernetes` of the tests' control plane.
pub fn kubernetes_module() -> Result<PathBuf> {
    provided("kubernetes-module")
}

/// A tool that is not one of the control plane: `tests/tools/install.sh NAME`.
pub fn provided(name: &str) -> Result<PathBuf> {
    Ok(outside::folder_of(INSTALL, Some(name))?.join(name))
}

/// A new temporary folder, for this user alone: it has keys of clusters.
pub fn folder(prefix: &str) -> Result<TempDir> {
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    let folder = tempfile::Builder::new().prefix(prefix).permissions(private).tempdir();
    folder.map_err(|error| format!("no temporary folder: {error}; set TMPDIR to a folder that is writable").into())
}

/// Copies the files of a folder, which may be read-only.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            std::fs::write(target, std::fs::read(entry.path())?)?;
        }
    }
    Ok(())
}

/// Appends a line to a file in `target`, which tests of all processes share.
pub fn append(name: &str, line: &str) {
    let file = std::fs::OpenOptions::new().create(true).append(true).open(project().join("target").join(name));
    // It is a report: a test doesn't fail without it.
    let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
}
