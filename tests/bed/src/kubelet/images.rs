//! Images of Pods: which are in the registry, and which are executables and folders of this
//! machine.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::PodSpec;
use tokio::sync::OnceCell;

use super::container::{self, Mount};
use crate::registry::{self, Registry};
use crate::skip::skip;
use crate::{Result, tools};

/// Contents of images that are not in the registry: image (without tag) to path.
pub type Images = BTreeMap<String, PathBuf>;

/// The image of the official credential plugins.
pub const PLUGIN_IMAGE: &str = "registry.example/plugins";
/// The image of the tests' own credential plugins.
pub const OWN_PLUGIN_IMAGE: &str = "registry.example/own-plugins";
/// A folder of this machine in place of an image, whose files change while the Pod runs.
pub const FOLDER_IMAGE: &str = "registry.example/folder";

/// The registry, if its images run in containers here; tried once with one of them.
pub async fn in_containers() -> Result<Option<&'static Registry>> {
    static WORK: OnceCell<bool> = OnceCell::const_new();
    let Some(registry) = registry::shared().await? else { return Ok(None) };
    let probe = || async {
        let probed = tokio::task::spawn_blocking(move || {
            let program = registry::first_program()?;
            container::probe(&registry.pull(&program)?)
        });
        let probed = probed.await?;
        if let Err(error) = &probed {
            skip(registry::needs(), &format!("images in containers: {error}; Pods run as processes"));
        }
        Ok::<_, crate::Error>(probed.is_ok())
    };
    Ok(WORK.get_or_try_init(probe).await?.then_some(registry))
}

/// The folder of an image volume: an image of the registry; or `folder`, pushed as an image and
/// pulled. The tests' own plugins, `own`, are scripts that change while the Pod runs.
pub fn volume(registry: &Registry, reference: &str, folder: &Path, own: Option<&str>) -> Result<PathBuf> {
    if own == Some(name_of(reference)) || name_of(reference) == FOLDER_IMAGE {
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755))?;
        return Ok(folder.to_owned());
    }
    if name_of(reference) == PLUGIN_IMAGE || !folder.is_dir() {
        return Ok(registry.pull(reference)?.root);
    }
    Ok(registry.pull(&registry.push_folder(folder)?)?.root)
}

/// The image of the tests' own plugins, if the Pod has it.
pub fn own(pod: &PodSpec) -> Option<String> {
    let mut references = pod.volumes.iter().flatten().filter_map(|v| v.image.as_ref()?.reference.as_deref());
    references.find(|r| name_of(r) == OWN_PLUGIN_IMAGE).map(|r| name_of(r).to_owned())
}

/// What the tests' own plugins need, which are shell scripts in `folder`: this machine's programs
/// and libraries, and the paths that the scripts name.
pub fn interpreter(folder: &Path) -> Result<Vec<Mount>> {
    let mount = |source: PathBuf| Mount { target: source.display().to_string(), source, read_only: true };
    let mut mounts = vec![mount(folder.to_owned())];
    let programs = ["/bin", "/lib", "/lib64", "/usr/bin", "/usr/lib"].map(PathBuf::from);
    mounts.extend(programs.into_iter().filter(|path| path.is_dir()).map(mount));
    for plugin in tools::OFFICIAL_PLUGINS {
        mounts.push(mount(tools::control_plane(plugin)?));
    }
    Ok(mounts)
}

fn name_of(reference: &str) -> &str {
    let name = reference.split('@').next().unwrap_or_default();
    name.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')).map_or(name, |(name, _)| name)
}

/// The executable or the folder in place of the image.
pub fn of_machine(reference: &str, images: &Images) -> Result<PathBuf> {
    let found = images.get(name_of(reference)).cloned();
    found.ok_or_else(|| format!("image {reference} is neither in a registry nor built: run cargo build").into())
}
