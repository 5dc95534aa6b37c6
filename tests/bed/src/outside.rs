//! Programs in a network of their own (see [`crate::network`]) can't download tools and releases.
//! The process that started them, which is outside, does that for them.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Result;

/// The scripts that download.
const SCRIPTS: [&str; 2] = ["tests/tools/install.sh", "tests/package/releases.sh"];
/// Variable with the folder of the socket.
pub const FOLDER: &str = "KNATIVE_OUTSIDE";

/// The socket in `folder` by a path that is short, as paths of sockets must be, and what keeps that
/// path valid.
fn socket(folder: &Path) -> Result<(PathBuf, std::fs::File)> {
    let open = std::fs::File::open(folder)?;
    Ok((PathBuf::from(format!("/proc/self/fd/{}/socket", open.as_raw_fd())), open))
}

/// Runs the scripts for programs that know `folder`, until this process ends.
pub fn serve(folder: &Path) -> Result<()> {
    let (path, _open) = socket(folder)?;
    let listener = UnixListener::bind(path)?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(stream));
        }
    });
    Ok(())
}

fn answer(mut stream: UnixStream) {
    let mut line = String::new();
    let read = BufReader::new(&stream).read_line(&mut line);
    let mut words = line.split_whitespace();
    let (script, name) = (words.next().unwrap_or_default(), words.next());
    let known = |_| if SCRIPTS.contains(&script) { run(script, name) } else { Err(format!("unknown {script}").into()) };
    let text = match read.map_err(crate::Error::from).and_then(known) {
        Ok(folder) => format!("{}\n", folder.display()),
        Err(error) => format!("\n{error}"),
    };
    // The program may have ended.
    let _ = stream.write_all(text.as_bytes());
}

/// The folder that `script` of the project prints, which may download what is there. `name`: its
/// argument.
pub fn folder_of(script: &str, name: Option<&str>) -> Result<PathBuf> {
    let Some(folder) = std::env::var_os(FOLDER) else { return run(script, name) };
    let mut stream = UnixStream::connect(socket(Path::new(&folder))?.0)?;
    writeln!(stream, "{script} {}", name.unwrap_or_default())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.split_once('\n') {
        Some((path, _)) if !path.is_empty() => Ok(PathBuf::from(path)),
        Some((_, error)) => Err(error.to_owned().into()),
        None => Err("the process that downloads tools has ended".into()),
    }
}

fn run(script: &str, name: Option<&str>) -> Result<PathBuf> {
    let output = Command::new(crate::project().join(script))
        .args(name)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("{script}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{script} {}failed", name.map(|name| format!("{name} ")).unwrap_or_default()).into());
    }
    Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim_end_matches('\n')))
}
