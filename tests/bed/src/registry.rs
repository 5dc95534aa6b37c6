//! A container registry with TLS on the loopback network (distribution/distribution), and the
//! images that Pods pull from it. All registries of image references are mirrored by this one.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::geteuid;
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::OnceCell;

use crate::pki::Issued;
use crate::process::Process;
use crate::skip::{KERNEL, Needs, skip};
use crate::subnet::Subnet;
use crate::{Result, environment, pki, ports, tools};

/// The registry's image of the official credential plugins.
const PLUGINS: &str = "plugins:test";
/// The user of programs, as in images of Knative. Kubernetes knows from the number that it isn't
/// root.
const USER: &str = "65532";
/// Commands of crane that push nothing.
const READS: [&str; 3] = ["digest", "config", "export"];
/// Seconds until crane is stopped.
const LIMIT: &str = "300";

/// An image, unpacked.
#[derive(Clone, Debug)]
pub struct Image {
    /// Its root file system.
    pub root: PathBuf,
    /// Its configuration (`config` of the OCI image configuration).
    pub config: Value,
}

/// Its name on real nodes.
pub const NAME: &str = "registry.example";
/// The hosts for which it has a certificate: itself, that of the operator's own images, and that of
/// the mirror in docs/operate/air-gap.md.
pub const HOSTS: [&str; 3] = [NAME, "ghcr.io", "registry.example.com"];

/// A running registry.
#[derive(Debug)]
pub struct Registry {
    address: String,
    unpacked: Mutex<BTreeMap<String, Image>>,
    pushed: Mutex<BTreeMap<String, String>>,
    /// Digests of pulled images, by reference, until something is pushed.
    digests: Mutex<BTreeMap<String, String>>,
    _process: Process,
    dir: TempDir,
    _subnet: Subnet,
}

/// Owner of the images in layouts: with it, they have the references of the chart, without a host.
const OWNER: &str = "knative-operator-rs";
/// The folder of its images, in that of the registry.
const DATA: &str = "data";
/// The variable that names the folder of the images.
const FOLDER: &str = "KNATIVE_IMAGES";

/// The registry of this process with the images of `make images` in `KNATIVE_IMAGES`. `None` if
/// that is not set, or, with a message, if images can't be run here: Pods then run the binaries as
/// processes.
pub async fn shared() -> Result<Option<&'static Registry>> {
    static REGISTRY: OnceCell<Option<Registry>> = OnceCell::const_new();
    let start = || async {
        let wanted = std::env::var_os(FOLDER).is_some_and(|folder| !folder.is_empty());
        let started = tokio::task::spawn_blocking(move || match layouts() {
            _ if !wanted => Ok(None),
            Ok(folder) => Registry::start(&folder).map(Some),
            Err(reason) => {
                skip(needs(), &format!("images in containers: {reason}; Pods run as processes"));
                Ok(None)
            }
        });
        started.await?
    };
    Ok(REGISTRY.get_or_try_init(start).await?.as_ref())
}

/// What is missing if images can't be run: root, or `make test`, which builds them.
pub fn needs() -> Needs {
    if geteuid().is_root() { Needs::Everywhere } else { KERNEL }
}

/// The folder of the layouts, or why images can't be run.
pub fn layouts() -> std::result::Result<PathBuf, String> {
    let folder = std::env::var_os(FOLDER).filter(|f| !f.is_empty()).ok_or("KNATIVE_IMAGES is not set")?;
    let folder = tools::project().join(folder);
    if !folder.join("digests.txt").is_file() {
        return Err(format!("{} has no images", folder.display()));
    }
    if !geteuid().is_root() {
        return Err("containers need root".to_owned());
    }
    let isolated = Command::new("unshare").args(["--mount", "--pid", "--uts", "--fork", "true"]).output();
    match isolated {
        Ok(output) if output.status.success() => Ok(folder),
        Ok(output) => Err(format!("namespaces: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("unshare: {error}")),
    }
}

/// Reference of the first image in the layouts: that of a program with `--version`.
pub fn first_program() -> Result<String> {
    let images = std::fs::read_to_string(layouts()?.join("digests.txt"))?;
    let (first, _) = images.split_once(' ').ok_or("digests.txt is invalid")?;
    Ok(format!("{OWNER}/{first}"))
}

impl Registry {
    /// Starts a registry and pushes the layouts of `folder` and the credential plugins.
    pub fn start(folder: &Path) -> Result<Self> {
        let registry = Self::empty()?;
        registry.push_layouts(folder)?;
        Ok(registry)
    }

    /// Pushes the layouts of `folder` and the credential plugins.
    pub fn push_layouts(&self, folder: &Path) -> Result<()> {
        for line in std::fs::read_to_string(folder.join("digests.txt"))?.lines() {
            let (image, digest) = line.split_once(' ').ok_or("digests.txt is invalid")?;
            let layout = folder.join(image.replace(':', "-"));
            self.push(&layout, &format!("{OWNER}/{image}"), digest)?;
        }
        let plugins = self.dir.path().join("plugins");
        tools::official_plugins(&plugins)?;
        self.push_files(&plugins, PLUGINS)
    }

    /// Starts a registry without images.
    pub fn empty() -> Result<Self> {
        Self::open(None)
    }

    /// Starts a registry with a copy of the `data` of another one.
    pub fn open(data: Option<&Path>) -> Result<Self> {
        let dir = tools::folder("knative-registry-")?;
        let (subnet, path) = (Subnet::take()?, dir.path());
        if let Some(data) = data {
            copy(data, &path.join(DATA))?;
        }
        let ip: Ipv4Addr = subnet.address(3);
        ports::check(ip)?;
        let authority = pki::Authority::new("registry")?;
        std::fs::write(path.join("ca.crt"), authority.pem())?;
        authority.issue("registry", None, &[ip.into()], &HOSTS)?.write(path, "server")?;
        let (file, address) = (|name: &str| path.join(name).display().to_string(), format!("{ip}:{}", ports::REGISTRY));
        let config = serde_json::json!({
            "version": "0.1", "log": {"level": "error", "accesslog": {"disabled": true}},
            "storage": {"filesystem": {"rootdirectory": file(DATA)}, "delete": {"enabled": true}},
            // A client behind a proxy goes on with the name that it knows.
            "http": {"addr": address, "relativeurls": true, "tls": {"certificate": file("server.crt"), "key": file("server.key")}},
        });
        std::fs::write(path.join("config.yml"), config.to_string())?;
        let environment = [
            ("TETHER_REMOVE".to_owned(), path.display().to_string()),
            ("OTEL_TRACES_EXPORTER".to_owned(), "none".to_owned()),
        ];
        let arguments = ["serve".to_owned(), file("config.yml")];
        let program = tools::control_plane("registry")?;
        let mut process = Process::start("registry", path, &program, &arguments, &environment, Duration::ZERO)?;
        let deadline = Instant::now() + crate::wait::LIMIT;
        while TcpStream::connect((ip, ports::REGISTRY)).is_err() {
            if process.ended().is_some() || Instant::now() > deadline {
                return Err(format!("the registry did not start:\n{}", process.log()).into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let (unpacked, pushed, digests) = (Mutex::default(), Mutex::default(), Mutex::default());
        Ok(Self { address, unpacked, pushed, digests, _process: process, dir, _subnet: subnet })
    }

    /// Host and port.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Adds a copy of the `data` of another one.
    pub fn add(&self, data: &Path) -> Result<()> {
        copy(&data.join("."), &self.dir.path().join(DATA))
    }

    /// Copies its images to `folder`, for [`Registry::open`].
    pub fn save(&self, folder: &Path) -> Result<()> {
        copy(&self.dir.path().join(DATA), folder)
    }

    /// Its certificate authority.
    pub fn authority(&self) -> PathBuf {
        self.dir.path().join("ca.crt")
    }

    /// Its certificate.
    pub fn certificate(&self) -> Result<Issued> {
        let read = |file: &str| std::fs::read_to_string(self.dir.path().join(file));
        Ok(Issued { certificate: read("server.crt")?, key: read("server.key")? })
    }

    /// Runs crane, which trusts the registry; returns stdout, or stderr as the error.
    pub fn crane(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new("timeout");
        command.arg(LIMIT).arg(tools::control_plane("crane")?).args(arguments).stdin(Stdio::null());
        let output =
            environment::confine(&mut command, self.dir.path()).env("SSL_CERT_FILE", self.authority()).output()?;
        if arguments.first().is_none_or(|command| !READS.contains(command)) {
            self.digests.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
        if output.status.code() == Some(124) {
            return Err(format!("crane {} has not ended after {LIMIT} seconds", arguments.join(" ")).into());
        }
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
        }
        Err(format!("crane {}: {}", arguments[0], String::from_utf8_lossy(&output.stderr).trim()).into())
    }

    /// Pushes an OCI image layout as `image`, and checks its digest.
    fn push(&self, layout: &Path, image: &str, digest: &str) -> Result<()> {
        let to = format!("{}/{image}", self.address);
        self.crane(&["push", &layout.display().to_string(), &to])?;
        let pushed = self.crane(&["digest", &to])?;
        if pushed == digest { Ok(()) } else { Err(format!("{image} has digest {pushed} instead of {digest}").into()) }
    }

    /// Pushes an image of a program: the files of `folder`, which runs `entrypoint` as a user
    /// without rights.
    pub fn push_program(&self, folder: &Path, image: &str, entrypoint: &str) -> Result<()> {
        self.append(folder, image)?;
        self.mutate(image, &["--user", USER, "--workdir", "/", "--entrypoint", entrypoint])
    }

    /// Pushes an image of programs that a Pod starts by their paths: the files of `folder`, for a
    /// user without rights.
    pub fn push_programs(&self, folder: &Path, image: &str) -> Result<()> {
        self.append(folder, image)?;
        self.mutate(image, &["--user", USER, "--workdir", "/"])
    }

    /// Sets a variable of the environment of `image`: `NAME=VALUE`.
    pub fn set_environment(&self, image: &str, variable: &str) -> Result<()> {
        self.mutate(image, &["--env", variable])
    }

    /// Pushes an image with the files of `folder`, which containerd mounts as a volume.
    pub fn push_files(&self, folder: &Path, image: &str) -> Result<()> {
        self.append(folder, image)?;
        self.mutate(image, &[])
    }

    /// Changes the configuration of an image. It gets the platform of this machine: containerd
    /// demands one.
    fn mutate(&self, image: &str, settings: &[&str]) -> Result<()> {
        let (to, platform) = (format!("{}/{image}", self.address), format!("linux/{}", architecture()));
        self.crane(&[&["mutate", &to, "-t", &to, "--set-platform", &platform], settings].concat()).map(drop)
    }

    /// Pushes an image with the files of `folder`; returns its reference with digest.
    fn append(&self, folder: &Path, image: &str) -> Result<String> {
        let (to, layer) = (format!("{}/{image}", self.address), tempfile::NamedTempFile::new_in(self.dir.path())?);
        let packed = Command::new("tar")
            .args(["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--mode=u=rwX,go=rX", "-chf", "-", "-C"])
            .arg(folder)
            .arg(".")
            .stdout(layer.reopen()?)
            .status()?;
        if !packed.success() {
            return Err(format!("tar of {} failed", folder.display()).into());
        }
        self.crane(&["append", "--oci-empty-base", "-f", &layer.path().display().to_string(), "-t", &to])?;
        Ok(format!("{}@{}", to.rsplit_once(':').map_or(to.as_str(), |(name, _)| name), self.crane(&["digest", &to])?))
    }

    /// Pushes `folder` as an image of its own, once for the same files; returns the reference.
    pub fn push_folder(&self, folder: &Path) -> Result<String> {
        let state = listing(folder)?;
        let mut pushed = self.pushed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reference) = pushed.get(&state) {
            return Ok(reference.clone());
        }
        let reference = self.append(folder, &format!("folders:{}", pushed.len()))?;
        pushed.insert(state, reference.clone());
        Ok(reference)
    }

    /// Digest of the image `name` of this registry. Each Pod asks, and crane takes longer to start
    /// than to answer.
    fn digest(&self, name: &str, platform: &str) -> Result<String> {
        let known = self.digests.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        if let Some(digest) = known {
            return Ok(digest);
        }
        let digest = self.crane(&["digest", "--platform", platform, name])?;
        self.digests.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), digest.clone());
        Ok(digest)
    }

    /// Pulls and unpacks the image for this machine's architecture.
    pub fn pull(&self, reference: &str) -> Result<Image> {
        let name = mirrored(reference, &self.address);
        let platform = format!("linux/{}", architecture());
        let digest = self.digest(&name, &platform)?;
        let mut unpacked = self.unpacked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(image) = unpacked.get(&digest) {
            return Ok(image.clone());
        }
        let config: Value = serde_json::from_str(&self.crane(&["config", "--platform", &platform, &name])?)?;
        // An image of files only, such as a volume, names no architecture.
        let machine = config["architecture"].as_str().unwrap_or_default();
        if !machine.is_empty() && machine != architecture() {
            return Err(format!("{reference} is for {machine}, and this machine is {}", architecture()).into());
        }
        let root = self.dir.path().join("unpacked").join(digest.replace(':', "-"));
        std::fs::create_dir_all(&root)?;
        let archive = root.with_extension("tar");
        self.crane(&["export", "--platform", &platform, &name, &archive.display().to_string()])?;
        let unpack =
            Command::new("tar").arg("-xpf").arg("-").arg("-C").arg(&root).stdin(File::open(&archive)?).status()?;
        if !unpack.success() {
            return Err(format!("{reference} can't be unpacked").into());
        }
        std::fs::remove_file(archive)?;
        let image = Image { root, config: config["config"].clone() };
        unpacked.insert(digest, image.clone());
        Ok(image)
    }
}

/// Copies a folder with everything in it.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let copied = Command::new("cp").arg("-a").arg("--reflink=auto").arg(from).arg(to).output()?;
    if copied.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&copied.stderr).trim().into()) }
}

/// The reference at this registry: the host of other registries is replaced.
fn mirrored(reference: &str, registry: &str) -> String {
    let (host, rest) = reference.split_once('/').unwrap_or(("", reference));
    let rest = if host.contains(['.', ':']) || host == "localhost" { rest } else { reference };
    format!("{registry}/{rest}")
}

/// This machine's architecture, as OCI names it.
pub fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Paths, sizes and modification times of all files, so that an equal listing has equal contents.
fn listing(folder: &Path) -> Result<String> {
    let output = Command::new("find").arg("-L").arg(folder).args(["-type", "f", "-printf", "%p %s %T@\n"]).output()?;
    let mut lines: Vec<_> = std::str::from_utf8(&output.stdout)?.lines().collect();
    lines.sort_unstable();
    Ok(format!("{}\n{}", folder.display(), lines.join("\n")))
}
