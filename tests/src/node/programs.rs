//! Executables in place of images: Knative's own, built from its Go modules, and Envoy.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde_json::json;

use crate::kubelet::container::Mount;
use crate::registry::Image;
use crate::{Result, tools};

/// Directory of Knative's images.
const KNATIVE: &str = "knative.dev/";
/// Folders of this machine that Envoy needs, which is not static.
const LIBRARIES: [&str; 3] = ["/lib", "/lib64", "/usr/lib"];

/// Executables by image.
pub struct Programs {
    /// Folders with Knative's executables, by minor version, the newest first.
    minors: Vec<(String, PathBuf)>,
    envoy: PathBuf,
    images: PathBuf,
    lock: Mutex<()>,
}

impl Programs {
    /// The executables of `minors` of Knative, which `tests/tools/install.sh` provides. `dir` gets
    /// their root file systems.
    pub fn new(minors: &[&str], dir: &Path) -> Result<Self> {
        let mut found = Vec::new();
        for minor in minors {
            found.push(((*minor).to_owned(), tools::control_plane(&format!("knative-{minor}"))?));
        }
        let (envoy, images) = (tools::control_plane("envoy")?.canonicalize()?, dir.join("images"));
        Ok(Self { minors: found, envoy, images, lock: Mutex::default() })
    }

    /// The image `reference` of Knative `version`, and further mounts. `None` if there is no
    /// executable for it.
    pub fn image(&self, reference: &str, version: &str) -> Result<Option<(Image, Vec<Mount>)>> {
        if reference.contains("/envoy") {
            let image = self.unpacked("envoy", &self.envoy, "/usr/local/bin/envoy")?;
            let mount = |folder: &str| Mount { source: folder.into(), target: folder.to_owned(), read_only: true };
            let libraries = LIBRARIES.iter().filter(|folder| Path::new(folder).is_dir());
            return Ok(Some((image, libraries.map(|folder| mount(folder)).collect())));
        }
        let name = reference.split(['@', ':']).next().unwrap_or_default();
        let Some((_, command)) = name.split_once(KNATIVE) else { return Ok(None) };
        let command = command.replace('/', "_");
        let own = self.minors.iter().filter(|(minor, _)| version.starts_with(&format!("{minor}.")));
        for (minor, folder) in own.chain(&self.minors) {
            let program = folder.join(&command);
            if program.is_file() {
                let path =
                    format!("/ko-app/{}", command.rsplit_once("cmd_").map_or(command.as_str(), |(_, last)| last));
                return Ok(Some((self.unpacked(&format!("{minor}-{command}"), &program, &path)?, Vec::new())));
            }
        }
        Ok(None)
    }

    /// An image with `program` at `path`, as `ko` builds them.
    fn unpacked(&self, name: &str, program: &Path, path: &str) -> Result<Image> {
        let _guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let root = self.images.join(name);
        let target = root.join(path.trim_start_matches('/'));
        if !target.exists() {
            for folder in ["etc", "tmp", "var/run/ko", "dev", "proc", "sys"] {
                fs::create_dir_all(root.join(folder))?;
            }
            fs::set_permissions(root.join("tmp"), fs::Permissions::from_mode(0o1777))?;
            fs::write(root.join("etc/passwd"), "root:x:0:0::/:\nnonroot:x:65532:65532::/:\n")?;
            fs::create_dir_all(target.parent().ok_or("no folder")?)?;
            if fs::hard_link(program, &target).is_err() {
                fs::copy(program, &target)?;
            }
        }
        let config = json!({"User": "65532", "Entrypoint": [path], "Env": ["KO_DATA_PATH=/var/run/ko"]});
        Ok(Image { root, config })
    }
}
