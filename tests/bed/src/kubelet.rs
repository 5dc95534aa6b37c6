//! Plays the kubelet for the project's Deployments: command line, environment, mounted ConfigMaps,
//! Secrets and images, and the ServiceAccount token of the installed Deployment.
//!
//! With images (see [`registry`]), the Pod's image is pulled by its reference, and its container
//! runs in namespaces of its own. Otherwise the Pod is a process, with these differences: mount
//! paths are below its own folder, so all mentions of them (arguments, environment, mounted files)
//! are rewritten, and the API server is in `KUBECONFIG` instead of the in-cluster environment.
//!
//! In both cases, the Pod's address is a loopback address in `BIND_ADDRESS`.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, PodSpec, Volume};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::Api;

use crate::apart::Apart;
use crate::cluster::Cluster;
use crate::kubeconfig::{User, kubeconfig};
use crate::process::Process;
use crate::registry::{Image, Registry};
use crate::{Result, ports, texts};

use self::container::{Mount, Spec};
pub use self::images::{FOLDER_IMAGE, Images, OWN_PLUGIN_IMAGE, PLUGIN_IMAGE};
use self::volumes::{Follower, Source};

pub mod container;
pub mod images;
pub mod volumes;

/// A Pod of a Deployment.
pub struct Pod {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// Where it says whether it is ready.
    pub readiness: SocketAddr,
    /// The process.
    pub process: Process,
    /// Its folder.
    pub dir: PathBuf,
    /// The token of its ServiceAccount. No other Pod has it.
    pub token: String,
    /// Whether its image runs in a container.
    pub contained: bool,
    mounts: BTreeMap<String, PathBuf>,
    _followers: Vec<Follower>,
}

impl Pod {
    /// `path` of its file system, as its process knows it.
    pub fn path(&self, path: &str) -> String {
        if self.contained { path.to_owned() } else { rewrite(path, &self.mounts) }
    }
}

static NEXT: AtomicU16 = AtomicU16::new(0);
/// Grace period of a Pod that is dropped.
const GRACE: Duration = Duration::from_secs(2);
/// Number of addresses for Pods.
const ADDRESSES: u16 = 64;

/// The next free address, and its number.
fn address(cluster: &Cluster) -> Result<(Ipv4Addr, u16)> {
    for _ in 0..ADDRESSES {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let address = cluster.subnet().address(64 + u8::try_from(number % ADDRESSES).unwrap_or_default());
        if !ports::is_taken(address, ports::ADMIN) {
            return Ok((address, number));
        }
    }
    Err(ports::in_use(ports::ADMIN, "metrics of operator and webhook").into())
}

/// Starts a Pod of the Deployment `name`. `images` has the executables and folders that are not in
/// the registry; `extra` is added to its environment. With `LD_PRELOAD` in it, the Pod is a
/// process: the executables in images are static.
pub async fn start(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
    images: &Images,
    extra: &[(&str, &str)],
) -> Result<Pod> {
    play(cluster, (namespace, name), images, extra, None).await
}

/// Like [`start`], as a process in a network namespace of its own.
pub async fn start_apart(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
    images: &Images,
    extra: &[(&str, &str)],
    apart: &Apart,
) -> Result<Pod> {
    play(cluster, (namespace, name), images, extra, Some(apart)).await
}

async fn play(
    cluster: &Cluster,
    (namespace, name): (&str, &str),
    images: &Images,
    extra: &[(&str, &str)],
    apart: Option<&Apart>,
) -> Result<Pod> {
    let deployment = Api::<Deployment>::namespaced(cluster.client(), namespace).get(name).await?;
    let pod = deployment.spec.template.spec.ok_or("a Deployment without Pods")?;
    let container = pod.containers.first().ok_or("a Pod without containers")?;
    let (address, number) = address(cluster)?;
    let pod_name = format!("{name}-{number}");
    let dir = cluster.dir().join("pods").join(&pod_name);
    std::fs::create_dir_all(&dir)?;
    let mut environment = environment(container, &pod_name, namespace, address)?;
    let arguments = container.args.iter().flatten().map(|a| expand(a, &environment)).collect();
    environment.insert("BIND_ADDRESS".to_owned(), address.to_string());
    environment.extend(extra.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
    let account = pod.service_account_name.as_deref().unwrap_or("default");
    let token = cluster.token(namespace, account, 24 * 3600).await?;
    if apart.is_none() {
        texts::keep(&dir.join(format!("{pod_name}.log")))?;
    }
    let mounts = mount_paths(&pod, container, &dir, images)?;
    let scheduled = Scheduled {
        cluster,
        namespace,
        name: pod_name,
        pod: &pod,
        container,
        dir,
        images,
        token,
        environment,
        arguments,
        apart,
    };
    let is_preloaded = extra.iter().any(|(name, _)| *name == "LD_PRELOAD");
    let shared = if apart.is_some() || is_preloaded || std::env::var_os("BENCH_OPERATOR").is_some() {
        None
    } else {
        images::in_containers().await?
    };
    let (process, mounts, followers) = match shared {
        Some(registry) => scheduled.in_container(registry, mounts).await?,
        None => scheduled.as_process(mounts).await?,
    };
    let Scheduled { name, dir, token, .. } = scheduled;
    let readiness = SocketAddr::new(address.into(), probe_port(container).unwrap_or(ports::ADMIN));
    let contained = shared.is_some();
    Ok(Pod { name, address, readiness, process, dir, token, contained, mounts, _followers: followers })
}

/// The port of the readiness probe of `container`.
fn probe_port(container: &Container) -> Option<u16> {
    match &container.readiness_probe.as_ref()?.http_get.as_ref()?.port {
        IntOrString::Int(port) => u16::try_from(*port).ok(),
        IntOrString::String(name) => {
            let port = container.ports.iter().flatten().find(|port| port.name.as_ref() == Some(name))?;
            u16::try_from(port.container_port).ok()
        }
    }
}

/// Folders of volumes, by mount path.
type Mounts = BTreeMap<String, PathBuf>;

/// A Pod that is about to start.
struct Scheduled<'a> {
    cluster: &'a Cluster,
    namespace: &'a str,
    name: String,
    pod: &'a PodSpec,
    container: &'a Container,
    dir: PathBuf,
    images: &'a Images,
    token: String,
    environment: BTreeMap<String, String>,
    arguments: Vec<String>,
    apart: Option<&'a Apart>,
}

impl Scheduled<'_> {
    /// Runs the Pod's image in a container.
    async fn in_container(&self, registry: &Registry, mut mounts: Mounts) -> Result<(Process, Mounts, Vec<Follower>)> {
        let own = images::own(self.pod);
        let mut all = Vec::new();
        // Pulling runs commands, and waits for them.
        let image = tokio::task::block_in_place(|| -> Result<Image> {
            for (target, source) in &mut mounts {
                let volume = volume_at(self.pod, self.container, target)?;
                if let Some(image) = &volume.image {
                    let reference = image.reference.as_deref().unwrap_or_default();
                    *source = images::volume(registry, reference, source, own.as_deref())?;
                }
                let read_only = volume.empty_dir.is_none();
                all.push(Mount { source: source.clone(), target: target.clone(), read_only });
            }
            registry.pull(self.container.image.as_deref().unwrap_or_default())
        })?;
        if let Some(folder) = own.and_then(|image| self.images.get(&image)) {
            all.extend(images::interpreter(folder)?);
        }
        let (server, authority) = self.cluster.pod_endpoint();
        let account = self.dir.join("serviceaccount");
        let files = [("token", self.token.clone()), ("ca.crt", authority), ("namespace", self.namespace.to_owned())];
        volumes::write(&account, &files.map(|(name, text)| (name.to_owned(), text.into_bytes())).into())?;
        all.push(Mount { source: account, target: SERVICE_ACCOUNT.to_owned(), read_only: true });
        let (host, port) =
            server.strip_prefix("https://").and_then(|s| s.rsplit_once(':')).ok_or("the API server has no port")?;
        let mut environment = self.environment.clone();
        environment.insert("KUBERNETES_SERVICE_HOST".to_owned(), host.to_owned());
        environment.insert("KUBERNETES_SERVICE_PORT".to_owned(), port.to_owned());
        let followers = self.follow(&mounts, &Mounts::new()).await?;
        let pid_file = self.dir.join(format!("{}.pid", self.name));
        let spec = Spec {
            name: &self.name,
            pod: self.pod,
            container: self.container,
            image: &image,
            environment: &environment,
            arguments: &self.arguments,
            mounts: all,
            network: None,
        };
        let runtime = container::prepare(&self.dir, &spec, &pid_file)?;
        let process =
            Process::contained(&self.name, &self.dir, &runtime.program, &runtime.arguments, &pid_file, GRACE)?;
        Ok((process, mounts, followers))
    }

    /// Runs the Pod's executable as a process.
    async fn as_process(&self, mounts: Mounts) -> Result<(Process, Mounts, Vec<Follower>)> {
        let file = self.dir.join("token");
        std::fs::write(&file, &self.token)?;
        let config = self.dir.join("kubeconfig");
        let user = User::TokenFile(file.to_str().ok_or("a path that is not UTF-8")?);
        let (server, authority) = self.cluster.pod_endpoint();
        std::fs::write(&config, kubeconfig("in-cluster", &server, &authority, self.namespace, &user))?;
        let mut environment: Vec<(String, String)> =
            self.environment.iter().map(|(name, value)| (name.clone(), rewrite(value, &mounts))).collect();
        environment.push(("KUBECONFIG".to_owned(), config.display().to_string()));
        let arguments: Vec<String> = self.arguments.iter().map(|argument| rewrite(argument, &mounts)).collect();
        let followers = self.follow(&mounts, &mounts).await?;
        let program = images::of_machine(self.container.image.as_deref().unwrap_or_default(), self.images)?;
        let (program, arguments) = match self.apart {
            Some(apart) => apart.command(&program, arguments)?,
            None => (program, arguments),
        };
        let process = Process::start(&self.name, &self.dir, &program, &arguments, &environment, GRACE)?;
        Ok((process, mounts, followers))
    }

    /// Writes the ConfigMaps and Secrets of the container's volumes, and keeps them current.
    /// Mentions of `paths` in them are rewritten.
    async fn follow(&self, mounts: &Mounts, paths: &Mounts) -> Result<Vec<Follower>> {
        let (client, mut followers) = (self.cluster.client(), Vec::new());
        for (target, folder) in mounts {
            let Some(source) = Source::of(volume_at(self.pod, self.container, target)?) else { continue };
            let paths = paths.clone();
            let change = move |bytes: Vec<u8>| {
                String::from_utf8(bytes)
                    .map_or_else(std::string::FromUtf8Error::into_bytes, |text| rewrite(&text, &paths).into_bytes())
            };
            let files = source.files(&client, self.namespace).await?;
            volumes::write(folder, &files.into_iter().map(|(name, bytes)| (name, change(bytes))).collect())?;
            followers.push(source.follow(client.clone(), self.namespace, folder.clone(), change));
        }
        Ok(followers)
    }
}

/// The environment in the Pod's specification.
fn environment(
    container: &Container,
    pod_name: &str,
    namespace: &str,
    address: Ipv4Addr,
) -> Result<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    for variable in container.env.iter().flatten() {
        let field = variable.value_from.as_ref().and_then(|f| f.field_ref.as_ref()).map(|f| f.field_path.as_str());
        let value = match field {
            Some("metadata.name") => pod_name.to_owned(),
            Some("metadata.namespace") => namespace.to_owned(),
            Some("status.podIP") => address.to_string(),
            Some(other) => {
                return Err(format!("unsupported source {other} of environment variable {}", variable.name).into());
            }
            None => variable.value.clone().unwrap_or_default(),
        };
        all.insert(variable.name.clone(), value);
    }
    Ok(all)
}

fn volume_at<'a>(pod: &'a PodSpec, container: &Container, path: &str) -> Result<&'a Volume> {
    let mount = container.volume_mounts.iter().flatten().find(|m| m.mount_path == path);
    let name = &mount.ok_or_else(|| format!("nothing is mounted at {path}"))?.name;
    Ok(pod.volumes.iter().flatten().find(|v| v.name == *name).ok_or_else(|| format!("no volume {name}"))?)
}

/// Folders of the container's volumes, by mount path. All Pods share the folder of an image.
fn mount_paths(pod: &PodSpec, container: &Container, dir: &Path, images: &Images) -> Result<BTreeMap<String, PathBuf>> {
    let mut mounts = BTreeMap::new();
    for at in container.volume_mounts.iter().flatten() {
        let folder = dir.join("root").join(at.mount_path.trim_start_matches('/'));
        let volume = volume_at(pod, container, &at.mount_path)?;
        let to = match &volume.image {
            Some(source) => {
                images::of_machine(source.reference.as_deref().unwrap_or_default(), images).unwrap_or(folder)
            }
            None if Source::of(volume).is_some() => folder,
            None if volume.empty_dir.is_some() => {
                std::fs::create_dir_all(&folder)?;
                std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777))?;
                folder
            }
            None => return Err(format!("volume {} has an unsupported type", volume.name).into()),
        };
        mounts.insert(at.mount_path.clone(), to);
    }
    Ok(mounts)
}

fn rewrite(text: &str, mounts: &BTreeMap<String, PathBuf>) -> String {
    mounts.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from.as_str(), &to.display().to_string()))
}

/// Expands `$(NAME)` in an argument, as Kubernetes does.
pub fn expand(text: &str, environment: &BTreeMap<String, String>) -> String {
    environment.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("$({name})"), value))
}

/// Mount path of the ServiceAccount token.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Writes an executable script.
pub fn script(path: &Path, text: &str) -> Result<()> {
    let fresh = path.with_extension("new");
    std::fs::write(&fresh, text)?;
    std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o755))?;
    Ok(std::fs::rename(fresh, path)?)
}
