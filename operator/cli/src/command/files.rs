//! Files that commands read: the flags -f and -R, as kubectl has them.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fmt::Display;
use std::io::Read;
use std::path::{Path, PathBuf};

use knative_operator_shared::api::Knative;
use knative_operator_shared::text::one_line;

use super::read;

/// How names of files in folders end.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];
/// Maximum size of a file, in bytes.
const MAX_SIZE: u64 = 64 << 20;
/// Name of standard input.
const STDIN: &str = "-";
/// What to do if the files have only fleets.
const FLEET_HINT: &str =
    "; in place of a KnativeFleet, name a file with a resource that it created, or one with the spec of its template";

/// Files and folders.
#[derive(Clone, Debug, clap::Args)]
pub struct FileArgs {
    /// File with resources, YAML or JSON; or folder with .yaml, .yml and .json files; or - for
    /// stdin. You can repeat it.
    #[arg(short = 'f', long, required = true, value_name = "FILE")]
    filename: Vec<String>,
    /// Reads the folders in a folder, too.
    #[arg(short = 'R', long)]
    recursive: bool,
}

/// A file.
#[derive(Debug, PartialEq, Eq)]
pub struct File {
    /// Its path, for messages.
    pub name: String,
    /// Its contents.
    pub text: String,
}

/// A file or folder that can't be read.
#[derive(Debug)]
pub struct Unreadable {
    /// Its path.
    pub name: String,
    /// What is reported about it, with the path.
    pub text: String,
}

/// A custom resource, and the file that has it.
#[derive(Debug)]
pub struct FileResource {
    /// The path, for messages.
    pub file: String,
    /// The resource.
    pub resource: Knative,
}

impl FileArgs {
    /// Whether the user named none.
    pub fn is_empty(&self) -> bool {
        self.filename.is_empty()
    }

    /// The names that the user gave, for messages.
    pub fn names(&self) -> String {
        let names: Vec<_> =
            self.filename.iter().map(|name| if name == STDIN { "stdin" } else { name.as_str() }).collect();
        names.join(", ")
    }

    /// All files; those of a folder in the order of their names; and what can't be read.
    pub fn read(&self) -> (Vec<File>, Vec<Unreadable>) {
        let (mut files, mut unreadable, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
        for name in &self.filename {
            let paths = self.paths(name, &mut unreadable);
            // A link, or a folder that is named as well, has the same file.
            let is_new = |path: &PathBuf| seen.insert(path.canonicalize().unwrap_or_else(|_| path.clone()));
            for path in paths.into_iter().filter(is_new) {
                match contents(&path) {
                    Ok(file) => files.push(file),
                    Err(error) => unreadable.push(error),
                }
            }
        }
        (files, unreadable)
    }

    /// All files. The error names each that can't be read.
    pub fn read_all(&self) -> Result<Vec<File>, String> {
        let (files, unreadable) = self.read();
        if unreadable.is_empty() { Ok(files) } else { Err(Unreadable::lines(&unreadable)) }
    }

    /// The path `name`, or if it is a folder, those of the files in it. Adds what can't be read to
    /// `unreadable`.
    fn paths(&self, name: &str, unreadable: &mut Vec<Unreadable>) -> Vec<PathBuf> {
        let path = Path::new(name);
        if name == STDIN || !path.is_dir() {
            return vec![path.to_owned()];
        }
        let (mut found, before) = (Vec::new(), unreadable.len());
        collect(path, self.recursive, &mut found, unreadable);
        if found.is_empty() && unreadable.len() == before {
            let hint = if self.recursive { "" } else { "; -R reads the folders in it, too" };
            let name = shown(path);
            let text = format!("{name}: the folder has no .yaml, .yml or .json file{hint}");
            unreadable.push(Unreadable { name, text });
        }
        found
    }

    /// The KnativeServings and KnativeEventings in the files, as [`read::resources`] reads them,
    /// and warnings.
    pub fn resources(
        &self,
        namespace: Option<&str>,
        is_strict: bool,
    ) -> Result<(Vec<FileResource>, Vec<String>), String> {
        let (mut resources, mut warnings) = (Vec::new(), Vec::new());
        for File { name, text } in self.read_all()? {
            let read = read::resources(&text, namespace, is_strict).map_err(|why| format!("{name}: {why}"))?;
            resources.extend(read.0.into_iter().map(|resource| FileResource { file: name.clone(), resource }));
            warnings.extend(read.1);
        }
        if resources.is_empty() {
            // Other objects are warnings.
            let has_fleet = warnings.iter().any(|warning| warning.starts_with("KnativeFleet "));
            let hint = if has_fleet { FLEET_HINT } else { "" };
            return Err(format!("{}: there is neither a KnativeServing nor a KnativeEventing{hint}", self.names()));
        }
        Ok((resources, warnings))
    }
}

impl Unreadable {
    /// The path `name` can't be read because of `why`.
    fn new(name: String, why: impl Display) -> Self {
        let text = format!("cannot read {name}: {why}");
        Self { name, text }
    }

    /// A line about each of `all`.
    pub fn lines(all: &[Self]) -> String {
        all.iter().map(|one| one.text.as_str()).collect::<Vec<_>>().join("\n")
    }
}

/// `path`, for messages. A name with several lines could look like a finding.
fn shown(path: &Path) -> String {
    one_line(&path.display().to_string())
}

/// Adds the files in `folder` to `found`, by name, and if `is_recursive` those in the folders
/// below that are not hidden. Links to folders are not followed, and what is no file is not read; a
/// link to nothing is a file that can't be read. Adds folders that can't be read to `unreadable`.
fn collect(folder: &Path, is_recursive: bool, found: &mut Vec<PathBuf>, unreadable: &mut Vec<Unreadable>) {
    let entries = std::fs::read_dir(folder).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
    let mut entries = match entries {
        Ok(entries) => entries,
        Err(error) => return unreadable.push(Unreadable::new(shown(folder), error)),
    };
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let (path, is_hidden) = (entry.path(), entry.file_name().as_encoded_bytes().starts_with(b"."));
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            if is_recursive && !is_hidden {
                collect(&path, true, found, unreadable);
            }
        } else if path.extension().and_then(OsStr::to_str).is_some_and(|extension| EXTENSIONS.contains(&extension))
            && std::fs::metadata(&path).map_or(true, |metadata| metadata.is_file())
        {
            found.push(path);
        }
    }
}

/// The file at `path`.
fn contents(path: &Path) -> Result<File, Unreadable> {
    let (mut name, mut text) = (shown(path), String::new());
    let read = if name == STDIN {
        "stdin".clone_into(&mut name);
        std::io::stdin().take(MAX_SIZE + 1).read_to_string(&mut text)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(MAX_SIZE + 1).read_to_string(&mut text))
    };
    match read {
        Err(error) => Err(Unreadable::new(name, error)),
        Ok(size) if size as u64 > MAX_SIZE => {
            Err(Unreadable::new(name, format!("it is larger than {} MiB", MAX_SIZE >> 20)))
        }
        Ok(_) => Ok(File { name, text }),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        files: FileArgs,
    }

    fn args(line: &[&str]) -> FileArgs {
        Line::try_parse_from([&["x"], line].concat()).unwrap().files
    }

    #[test]
    fn files_of_folders_are_read_by_name() {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in [("b.yaml", "b"), ("a.json", "a"), ("c.yml", "c"), ("note.txt", ""), ("deep/d.yaml", "d")] {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let folder = root.path().to_str().unwrap();
        let texts = |line: &[&str]| {
            args(line).read_all().map(|files| files.into_iter().map(|file| file.text).collect::<Vec<_>>().concat())
        };
        assert_eq!(texts(&["-f", folder]).unwrap(), "abc");
        assert_eq!(texts(&["-R", "-f", folder]).unwrap(), "abcd");
        let note = root.path().join("note.txt").display().to_string();
        let one = root.path().join("b.yaml").display().to_string();
        // Each file is read once, and hidden folders are not.
        std::os::unix::fs::symlink("a.json", root.path().join("same.json")).unwrap();
        std::fs::create_dir(root.path().join(".hidden")).unwrap();
        std::fs::write(root.path().join(".hidden/e.yaml"), "e").unwrap();
        assert_eq!(texts(&["-f", &one, "-f", &note, "-f", folder]).unwrap(), "bac");
        assert_eq!(texts(&["-R", "-f", folder]).unwrap(), "abcd");
        // A link to nothing hides no other file.
        let link = root.path().join("link.yaml");
        std::os::unix::fs::symlink("/none", &link).unwrap();
        let (files, unreadable) = args(&["-f", folder]).read();
        let names: Vec<_> = unreadable.iter().map(|one| one.name.clone()).collect();
        assert_eq!((files.len(), names), (3, vec![link.display().to_string()]));
        let error = texts(&["-f", folder]).unwrap_err();
        assert!(error.starts_with(&format!("cannot read {}: ", link.display())), "{error}");
        let empty = root.path().join("empty");
        std::fs::create_dir(&empty).unwrap();
        let error = texts(&["-f", empty.to_str().unwrap(), "-f", "/none.yaml"]).unwrap_err();
        let expected = format!(
            "{}: the folder has no .yaml, .yml or .json file; -R reads the folders in it, too\ncannot read /none.yaml: ",
            empty.display()
        );
        assert!(error.starts_with(&expected), "{error}");
        assert_eq!(args(&["-f", "-", "-f", "a"]).names(), "stdin, a");
    }
}
