//! Plays the kubelet for the project's Deployments: command line, environment, mounted ConfigMaps,
//! Secrets and images, and the ServiceAccount token of the installed Deployment, but as a process
//! here.
//!
//! Differences from a node: mount paths are below the process' own folder, so all mentions of them
//! (arguments, environment, mounted files) are rewritten; the Pod's address is a loopback address
//! in `BIND_ADDRESS`; the API server is in `KUBECONFIG` instead of the in-cluster environment.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Container, PodSpec, Secret, Volume};
use kube::Api;

use crate::cluster::Cluster;
use crate::kubeconfig::{User, kubeconfig};
use crate::process::Process;
use crate::{Result, texts, tools};

/// Contents of images, since nothing is pulled: image (without tag) to path.
pub type Images = BTreeMap<String, PathBuf>;

/// A Pod of a Deployment, as a process.
pub struct Pod {
    /// Its address.
    pub address: Ipv4Addr,
    /// The process.
    pub process: Process,
    /// Its folder.
    pub dir: PathBuf,
}

static NEXT: AtomicU16 = AtomicU16::new(0);
/// Grace period of a Pod that is dropped.
const GRACE: Duration = Duration::from_secs(2);
/// Port of the admin server of both processes.
const ADMIN: u16 = 9090;

fn address(cluster: &Cluster, number: u16) -> Ipv4Addr {
    cluster.subnet().address(64 + u8::try_from(number % 64).unwrap_or_default())
}

/// Starts a Pod of the Deployment `name`. `images` has the executable of its container's image, and
/// the folder of each image volume; `extra` is added to its environment.
pub async fn start(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
    images: &Images,
    extra: &[(&str, &str)],
) -> Result<Pod> {
    let deployment = Api::<Deployment>::namespaced(cluster.client(), namespace).get(name).await?;
    let pod = deployment.spec.template.spec.ok_or("a Deployment without Pods")?;
    let container = pod.containers.first().ok_or("a Pod without containers")?;
    // The next free address.
    let number = loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        if TcpListener::bind((address(cluster, number), ADMIN)).is_ok() {
            break number;
        }
    };
    let address = address(cluster, number);
    let pod_name = format!("{name}-{number}");
    let dir = cluster.dir().join("pods").join(&pod_name);
    std::fs::create_dir_all(&dir)?;
    let mounts = mount(cluster, namespace, &pod, container, &dir, images).await?;

    let account = pod.service_account_name.as_deref().unwrap_or("default");
    let token = dir.join("token");
    std::fs::write(&token, cluster.token(namespace, account, 3600).await?)?;
    let config = dir.join("kubeconfig");
    let user = User::TokenFile(token.to_str().ok_or("a path that is not UTF-8")?);
    let (server, authority) = cluster.pod_endpoint();
    std::fs::write(&config, kubeconfig("in-cluster", &server, &authority, namespace, &user))?;

    let mut environment: BTreeMap<String, String> = BTreeMap::new();
    for variable in container.env.iter().flatten() {
        let field = variable.value_from.as_ref().and_then(|f| f.field_ref.as_ref()).map(|f| f.field_path.as_str());
        let value = match field {
            Some("metadata.name") => pod_name.clone(),
            Some("metadata.namespace") => namespace.to_owned(),
            Some("status.podIP") => address.to_string(),
            Some(other) => {
                return Err(format!("unsupported source {other} of environment variable {}", variable.name).into());
            }
            None => variable.value.clone().unwrap_or_default(),
        };
        environment.insert(variable.name.clone(), rewrite(&value, &mounts));
    }
    let arguments: Vec<String> =
        container.args.iter().flatten().map(|a| rewrite(&expand(a, &environment), &mounts)).collect();
    environment.insert("KUBECONFIG".to_owned(), config.display().to_string());
    environment.insert("BIND_ADDRESS".to_owned(), address.to_string());
    environment.extend(extra.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));

    let program = image(container.image.as_deref().unwrap_or_default(), images)?;
    texts::keep(&dir.join(format!("{pod_name}.log")))?;
    let process =
        Process::start(&pod_name, &dir, &program, &arguments, &environment.into_iter().collect::<Vec<_>>(), GRACE)?;
    Ok(Pod { address, process, dir })
}

/// Creates the container's volumes below `dir`; returns mount paths and folders.
async fn mount(
    cluster: &Cluster,
    namespace: &str,
    pod: &PodSpec,
    container: &Container,
    dir: &Path,
    images: &Images,
) -> Result<BTreeMap<String, PathBuf>> {
    let mut mounts = BTreeMap::new();
    let volume =
        |name: &str| pod.volumes.iter().flatten().find(|v| v.name == name).ok_or_else(|| format!("no volume {name}"));
    for at in container.volume_mounts.iter().flatten() {
        // All Pods share an image.
        let to = match &volume(&at.name)?.image {
            Some(source) => image(source.reference.as_deref().unwrap_or_default(), images)?,
            None => dir.join("root").join(at.mount_path.trim_start_matches('/')),
        };
        mounts.insert(at.mount_path.clone(), to);
    }
    for at in container.volume_mounts.iter().flatten() {
        let (volume, to) = (volume(&at.name)?, &mounts[&at.mount_path]);
        if volume.image.is_some() {
            continue;
        }
        std::fs::create_dir_all(to)?;
        for (file, bytes) in contents(cluster, namespace, volume).await? {
            let text = String::from_utf8(bytes)
                .map_or_else(std::string::FromUtf8Error::into_bytes, |t| rewrite(&t, &mounts).into_bytes());
            std::fs::write(to.join(file), text)?;
        }
    }
    Ok(mounts)
}

async fn contents(cluster: &Cluster, namespace: &str, volume: &Volume) -> Result<BTreeMap<String, Vec<u8>>> {
    if let Some(source) = &volume.config_map {
        let map = Api::<ConfigMap>::namespaced(cluster.client(), namespace).get(&source.name).await?;
        return Ok(map.data.unwrap_or_default().into_iter().map(|(k, v)| (k, v.into_bytes())).collect());
    }
    if let Some(source) = &volume.secret {
        let name = source.secret_name.as_deref().unwrap_or_default();
        let secret = Api::<Secret>::namespaced(cluster.client(), namespace).get(name).await?;
        return Ok(secret.data.unwrap_or_default().into_iter().map(|(k, v)| (k, v.0)).collect());
    }
    if volume.empty_dir.is_some() {
        return Ok(BTreeMap::new());
    }
    Err(format!("volume {} has an unsupported type", volume.name).into())
}

fn image(reference: &str, images: &Images) -> Result<PathBuf> {
    let name = reference.split('@').next().unwrap_or_default();
    let name = name.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')).map_or(name, |(name, _)| name);
    images.get(name).cloned().ok_or_else(|| format!("unknown image {reference}").into())
}

fn rewrite(text: &str, mounts: &BTreeMap<String, PathBuf>) -> String {
    mounts.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from.as_str(), &to.display().to_string()))
}

/// Expands `$(NAME)` in an argument, as Kubernetes does.
fn expand(text: &str, environment: &BTreeMap<String, String>) -> String {
    environment.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("$({name})"), value))
}

/// The images of the chart: both binaries of this project, and the official credential plugin.
/// `BENCH_OPERATOR` names another operator to measure.
pub fn images(plugins: &Path) -> Result<Images> {
    let operator =
        std::env::var_os("BENCH_OPERATOR").map_or_else(|| tools::binary("knative-operator"), |other| Ok(other.into()));
    Ok([
        (OPERATOR_IMAGE.to_owned(), operator?),
        (WEBHOOK_IMAGE.to_owned(), tools::binary("knative-operator-webhook")?),
        (PLUGIN_IMAGE.to_owned(), plugins.to_owned()),
    ]
    .into())
}

/// The operator's image in the chart's default values.
pub const OPERATOR_IMAGE: &str = "ghcr.io/knative-operator-rs/knative-operator";
/// The webhook's image in the chart's default values.
pub const WEBHOOK_IMAGE: &str = "ghcr.io/knative-operator-rs/knative-operator-webhook";
/// The image of the tests' own credential plugins.
pub const PLUGIN_IMAGE: &str = "registry.example/plugins";

/// Writes an executable script.
pub fn script(path: &Path, text: &str) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let fresh = path.with_extension("new");
    std::fs::write(&fresh, text)?;
    std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o755))?;
    Ok(std::fs::rename(fresh, path)?)
}
