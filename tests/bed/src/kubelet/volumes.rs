//! ConfigMap and Secret volumes, which follow their objects: the files are links to a folder that
//! is replaced at once, as kubelet does.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Volume};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use tokio::task::JoinHandle;

use crate::Result;

/// Contents of a volume: file name to bytes.
pub type Files = BTreeMap<String, Vec<u8>>;

/// A task that keeps a volume equal to its object; ends when dropped.
pub struct Follower(JoinHandle<()>);

impl Drop for Follower {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The object of a volume.
#[derive(Clone, Debug)]
pub enum Source {
    /// The name of a ConfigMap.
    ConfigMap(String),
    /// The name of a Secret.
    Secret(String),
}

impl Source {
    /// The object of `volume`, if it has one.
    pub fn of(volume: &Volume) -> Option<Self> {
        let secret = volume.secret.as_ref().and_then(|s| s.secret_name.clone());
        volume.config_map.as_ref().map(|c| Self::ConfigMap(c.name.clone())).or(secret.map(Self::Secret))
    }

    /// Its files.
    pub async fn files(&self, client: &Client, namespace: &str) -> Result<Files> {
        Ok(match self {
            Self::ConfigMap(name) => of_config_map(Api::namespaced(client.clone(), namespace).get(name).await?),
            Self::Secret(name) => of_secret(Api::namespaced(client.clone(), namespace).get(name).await?),
        })
    }

    /// Writes the files to `folder` now, and after each change. `change` rewrites a file.
    pub fn follow(
        self,
        client: Client,
        namespace: &str,
        folder: PathBuf,
        change: impl Fn(Vec<u8>) -> Vec<u8> + Send + Sync + 'static,
    ) -> Follower {
        let namespace = namespace.to_owned();
        Follower(tokio::spawn(async move {
            let selector = |name: &str| watcher::Config::default().fields(&format!("metadata.name={name}"));
            let write = |files: Files| {
                let files = files.into_iter().map(|(name, bytes)| (name, change(bytes))).collect();
                if let Err(error) = write(&folder, &files) {
                    eprintln!("{}: {error}", folder.display());
                }
            };
            match self {
                Self::ConfigMap(name) => {
                    let api: Api<ConfigMap> = Api::namespaced(client, &namespace);
                    let mut all = watcher(api, selector(&name)).default_backoff().applied_objects().boxed();
                    while let Some(next) = all.next().await {
                        next.into_iter().for_each(|map| write(of_config_map(map)));
                    }
                }
                Self::Secret(name) => {
                    let api: Api<Secret> = Api::namespaced(client, &namespace);
                    let mut all = watcher(api, selector(&name)).default_backoff().applied_objects().boxed();
                    while let Some(next) = all.next().await {
                        next.into_iter().for_each(|secret| write(of_secret(secret)));
                    }
                }
            }
        }))
    }
}

fn of_config_map(map: ConfigMap) -> Files {
    let text = map.data.unwrap_or_default().into_iter().map(|(name, text)| (name, text.into_bytes()));
    text.chain(map.binary_data.unwrap_or_default().into_iter().map(|(name, bytes)| (name, bytes.0))).collect()
}

fn of_secret(secret: Secret) -> Files {
    secret.data.unwrap_or_default().into_iter().map(|(name, bytes)| (name, bytes.0)).collect()
}

/// Replaces all files of `folder` at once: `..data` is a link to a new folder with them.
pub fn write(folder: &Path, files: &Files) -> Result<()> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    std::fs::create_dir_all(folder)?;
    let current = std::fs::read_link(folder.join("..data")).ok();
    let unchanged =
        |name: &String, bytes: &Vec<u8>| std::fs::read(folder.join("..data").join(name)).ok().as_ref() == Some(bytes);
    let names =
        current.as_ref().map(|now| std::fs::read_dir(folder.join(now)).map(Iterator::count).unwrap_or_default());
    if names == Some(files.len()) && files.iter().all(|(name, bytes)| unchanged(name, bytes)) {
        return Ok(());
    }
    let fresh = format!("..{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    std::fs::create_dir_all(folder.join(&fresh))?;
    for (name, bytes) in files {
        std::fs::write(folder.join(&fresh).join(name), bytes)?;
    }
    symlink(&fresh, folder.join("..data.new"))?;
    std::fs::rename(folder.join("..data.new"), folder.join("..data"))?;
    for name in files.keys().filter(|name| std::fs::symlink_metadata(folder.join(name)).is_err()) {
        symlink(Path::new("..data").join(name), folder.join(name))?;
    }
    for entry in std::fs::read_dir(folder)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with("..") && !files.contains_key(&name) {
            std::fs::remove_file(entry.path())?;
        }
    }
    if let Some(old) = current {
        std::fs::remove_dir_all(folder.join(old))?;
    }
    Ok(())
}
