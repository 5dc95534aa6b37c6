//! The file that opens the page in a browser: it redirects to the URL with the token. The token is
//! in the arguments of no process, and no other user of the machine can read it.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{Error, Result, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::guard::random;

/// A file in a folder of its own. Dropping it deletes both.
pub struct Redirect {
    folder: PathBuf,
}

impl Redirect {
    /// A file that redirects to `url`, in the user's folder for running processes, or else in that
    /// for temporary files.
    ///
    /// # Errors
    ///
    /// If neither folder can be written.
    pub fn create(url: &str) -> Result<Self> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_absolute());
        match runtime.map(|folder| Self::create_in(&folder, url)) {
            Some(Ok(redirect)) => Ok(redirect),
            _ => Self::create_in(&std::env::temp_dir(), url),
        }
    }

    fn create_in(parent: &Path, url: &str) -> Result<Self> {
        let folder = parent.join(format!("knative-operator-{}", random().map_err(Error::other)?));
        DirBuilder::new().mode(0o700).create(&folder)?;
        let redirect = Self { folder };
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(redirect.path())?;
        file.write_all(page(url).as_bytes())?;
        Ok(redirect)
    }

    /// The file.
    pub fn path(&self) -> PathBuf {
        self.folder.join("open.html")
    }
}

impl Drop for Redirect {
    fn drop(&mut self) {
        // What can't be deleted has a token that is no longer valid.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A page that redirects to `url`, which has no characters with a meaning in HTML.
fn page(url: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\
         <meta http-equiv=\"refresh\" content=\"0; url={url}\">\n<title>Knative operator</title>\n\
         <p><a href=\"{url}\">Open the page</a></p>\n</html>\n"
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_the_user_can_read_the_token() {
        let parent = tempfile::tempdir().unwrap();
        let redirect = Redirect::create_in(parent.path(), "http://127.0.0.1:7000/?token=1a").unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&redirect.folder), mode(&redirect.path())), (0o700, 0o600));
        let text = std::fs::read_to_string(redirect.path()).unwrap();
        assert!(text.contains("content=\"0; url=http://127.0.0.1:7000/?token=1a\">"), "{text}");
        drop(redirect);
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
        assert!(Redirect::create_in(&parent.path().join("missing"), "http://127.0.0.1:7000/").is_err());
    }
}
