//! A Pod's container in its own mount, PID and UTS namespace, with the root file system of its
//! image, run by runc. The network is the machine's, or one of its own.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use serde_json::{Value, json};

use crate::registry::Image;
use crate::{Result, tools};

/// PATH of a container whose image sets none, as containerd has it.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Capabilities of a container that drops none, as containerd has them.
const CAPABILITIES: [&str; 14] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "FSETID",
    "FOWNER",
    "MKNOD",
    "NET_RAW",
    "SETGID",
    "SETUID",
    "SETFCAP",
    "SETPCAP",
    "NET_BIND_SERVICE",
    "SYS_CHROOT",
    "KILL",
    "AUDIT_WRITE",
];

/// A folder or file of this machine in the container.
#[derive(Clone, Debug)]
pub struct Mount {
    /// Path here.
    pub source: PathBuf,
    /// Path in the container.
    pub target: String,
    /// Whether the container may not write.
    pub read_only: bool,
}

/// A container to run.
pub struct Spec<'a> {
    /// The Pod's name, which is the host name.
    pub name: &'a str,
    /// Its Pod.
    pub pod: &'a PodSpec,
    /// The container.
    pub container: &'a Container,
    /// Its image.
    pub image: &'a Image,
    /// Environment of the Pod.
    pub environment: &'a BTreeMap<String, String>,
    /// Arguments, expanded.
    pub arguments: &'a [String],
    /// Volumes.
    pub mounts: Vec<Mount>,
    /// Its network namespace and its hosts file, if they are not the machine's.
    pub network: Option<(&'a Path, &'a Path)>,
}

/// A command that runs the container and ends with it.
pub struct Prepared {
    /// runc.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
}

/// Writes the OCI bundle of the container below `dir`. `pid_file` gets the process id of the
/// container.
pub fn prepare(dir: &Path, spec: &Spec<'_>, pid_file: &Path) -> Result<Prepared> {
    let bundle = dir.join("bundle");
    std::fs::create_dir_all(&bundle)?;
    // Links to the unpacked image: runc creates mount points in the root file system.
    let copied = Command::new("cp").args(["-al"]).arg(&spec.image.root).arg(bundle.join("rootfs")).status()?;
    if !copied.success() {
        return Err(format!("cp of {} failed", spec.image.root.display()).into());
    }
    std::fs::set_permissions(bundle.join("rootfs"), std::fs::Permissions::from_mode(0o755))?;
    std::fs::write(bundle.join("config.json"), config(spec)?.to_string())?;
    let text = |path: &Path| path.display().to_string();
    Ok(Prepared {
        program: tools::control_plane("runc")?,
        arguments: vec![
            "--root".to_owned(),
            text(&dir.join("runc")),
            "run".to_owned(),
            "--pid-file".to_owned(),
            text(pid_file),
            "--bundle".to_owned(),
            text(&bundle),
            // Unique on this machine, since it names a cgroup.
            dir.to_string_lossy().replace(|c: char| !c.is_ascii_alphanumeric() && !".-".contains(c), "_"),
        ],
    })
}

/// Runs `--version` of `image` in a container, to find out whether containers work here.
pub fn probe(image: &Image) -> Result<()> {
    let dir = tools::folder("knative-probe-")?;
    let (pod, environment, arguments) = (PodSpec::default(), BTreeMap::new(), vec!["--version".to_owned()]);
    let container = Container { args: Some(arguments.clone()), ..Container::default() };
    let (name, mounts) = ("probe", Vec::new());
    let spec = Spec {
        name,
        pod: &pod,
        container: &container,
        image,
        environment: &environment,
        arguments: &arguments,
        mounts,
        network: None,
    };
    let runtime = prepare(dir.path(), &spec, &dir.path().join("pid"))?;
    let output = Command::new(&runtime.program).args(&runtime.arguments).output()?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(format!("runc: {}", text.trim().lines().last().unwrap_or("no output")).into())
}

/// The container as an OCI runtime configuration.
fn config(spec: &Spec<'_>) -> Result<Value> {
    let security = spec.container.security_context.clone().unwrap_or_default();
    let pod = spec.pod.security_context.clone().unwrap_or_default();
    let (user, group) =
        user(spec, security.run_as_user.or(pod.run_as_user), security.run_as_group.or(pod.run_as_group))?;
    if security.run_as_non_root.or(pod.run_as_non_root) == Some(true) && user == 0 {
        return Err("container has runAsNonRoot and image will run as root".into());
    }
    let dropped = security.capabilities.and_then(|c| c.drop).unwrap_or_default();
    let kept: Vec<String> = CAPABILITIES
        .iter()
        .filter(|c| !dropped.iter().any(|d| d == "ALL" || d == *c))
        .map(|c| format!("CAP_{c}"))
        .collect();
    let mut environment = BTreeMap::from([("PATH".to_owned(), PATH.to_owned())]);
    for line in spec.image.config["Env"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let (name, value) = line.split_once('=').unwrap_or((line, ""));
        environment.insert(name.to_owned(), value.to_owned());
    }
    environment.extend(spec.environment.clone());
    let strings = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect()
    };
    let mut arguments = spec.container.command.clone().unwrap_or_else(|| strings(&spec.image.config["Entrypoint"]));
    if spec.container.args.is_some() {
        arguments.extend(spec.arguments.to_vec());
    } else if spec.container.command.is_none() {
        arguments.extend(strings(&spec.image.config["Cmd"]));
    }
    let folder = spec.container.working_dir.as_deref().or(spec.image.config["WorkingDir"].as_str());
    let mut mounts = vec![
        json!({"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"]}),
        json!({"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "strictatime", "mode=755", "size=65536k"]}),
        json!({"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": ["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]}),
        json!({"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid", "noexec", "nodev", "ro"]}),
        json!({"destination": "/etc/resolv.conf", "type": "bind", "source": "/etc/resolv.conf", "options": ["rbind", "ro"]}),
        json!({"destination": "/etc/hosts", "type": "bind", "source": spec.network.map_or(Path::new("/etc/hosts"), |(_, hosts)| hosts), "options": ["rbind", "ro"]}),
    ];
    let mut namespaces =
        vec![json!({"type": "pid"}), json!({"type": "mount"}), json!({"type": "uts"}), json!({"type": "ipc"})];
    namespaces.extend(spec.network.map(|(path, _)| json!({"type": "network", "path": path})));
    mounts.extend(spec.mounts.iter().map(|mount| {
        let access = if mount.read_only { "ro" } else { "rw" };
        json!({"destination": mount.target, "type": "bind", "source": mount.source, "options": ["rbind", "rprivate", access]})
    }));
    Ok(json!({
        "ociVersion": "1.2.0",
        "hostname": spec.name,
        "root": {"path": "rootfs", "readonly": security.read_only_root_filesystem == Some(true)},
        "process": {
            "user": {"uid": user, "gid": group},
            "args": arguments,
            "env": environment.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>(),
            "cwd": folder.filter(|f| !f.is_empty()).unwrap_or("/"),
            "noNewPrivileges": security.allow_privilege_escalation == Some(false),
            "capabilities": {"bounding": kept, "effective": if user == 0 { kept.clone() } else { Vec::new() }, "permitted": if user == 0 { kept.clone() } else { Vec::new() }},
        },
        "mounts": mounts,
        "linux": {
            "namespaces": namespaces,
            "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
        },
    }))
}

/// User and group: those of the Pod, or those of the image, which are numbers or names in its
/// `/etc/passwd`.
fn user(spec: &Spec<'_>, user: Option<i64>, group: Option<i64>) -> Result<(i64, i64)> {
    let image = spec.image.config["User"].as_str().unwrap_or_default();
    let (name, its_group) = image.split_once(':').unwrap_or((image, ""));
    let user = match (user, name.parse()) {
        (Some(user), _) | (None, Ok(user)) => user,
        (None, Err(_)) if name.is_empty() || name == "root" => 0,
        (None, Err(_)) => {
            return Err(format!("image has non-numeric user ({name}), cannot verify user is non-root").into());
        }
    };
    Ok((user, group.or(its_group.parse().ok()).unwrap_or_default()))
}
