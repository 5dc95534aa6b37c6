//! Errors of the fixture and of the tests, which know on which way they arose.

use std::backtrace::Backtrace;
use std::fmt;
use std::ops::Deref;
use std::path::Path;

/// Folders with the code of the tests.
const FOLDERS: [&str; 4] = ["tests/bed/src/", "tests/src/", "tests/tests/", "tests/benches/"];

/// What any error can become.
type Cause = Box<dyn std::error::Error + Send + Sync>;

/// An error of the fixture, as a sentence. `Debug` adds the lines on its way, innermost first:
/// those of the fixture, then those of the test. It doesn't implement [`std::error::Error`],
/// because it can be made from each type that does.
pub struct Error(Box<Arisen>);

/// A result of the fixture.
pub type Result<T> = std::result::Result<T, Error>;

struct Arisen {
    cause: Cause,
    /// Where. Only its text takes long.
    way: Backtrace,
}

impl<E: Into<Cause>> From<E> for Error {
    fn from(cause: E) -> Self {
        Self(Box::new(Arisen { cause: cause.into(), way: Backtrace::force_capture() }))
    }
}

impl Deref for Error {
    type Target = dyn std::error::Error + Send + Sync;

    fn deref(&self) -> &Self::Target {
        &*self.0.cause
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.cause, formatter)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self}")?;
        let (way, folder) = (self.0.way.to_string(), std::env::current_dir().unwrap_or_default());
        places(&way, &folder).iter().try_for_each(|place| write!(formatter, "\n  at {place}"))
    }
}

/// The lines of the tests in a backtrace, without that of [`Error::from`]. It shows paths from the
/// working directory `folder` on, which may be that of a package.
fn places(backtrace: &str, folder: &Path) -> Vec<String> {
    let all = backtrace.lines().filter_map(|line| line.trim_start().strip_prefix("at "));
    let own = |place: &str| {
        let inside = place.strip_prefix("./").map(|inside| folder.join(inside).display().to_string());
        let whole = inside.unwrap_or_else(|| place.to_owned());
        let start = FOLDERS.iter().find_map(|folder| whole.rfind(folder))?;
        Some(whole[start..].to_owned())
    };
    let mut places: Vec<String> = all.filter_map(own).skip(1).collect();
    places.dedup();
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARISES: u32 = line!() + 2;
    fn inner() -> Result<()> {
        Err("no answer".into())
    }

    const PASSES: u32 = line!() + 2;
    fn outer() -> Result<()> {
        inner()?;
        Ok(())
    }

    #[test]
    fn error_has_the_lines_on_its_way() {
        let error = outer().unwrap_err();
        assert_eq!(error.to_string(), "no answer");
        let text = format!("{error:?}");
        let [first, second] = [ARISES, PASSES]
            .map(|line| text.find(&format!("\n  at tests/bed/src/error.rs:{line}:")).unwrap_or(usize::MAX));
        assert!(text.starts_with("no answer\n") && first < second && second < text.len(), "{text}");
    }

    #[test]
    fn error_keeps_its_cause() {
        let error = Error::from(std::io::Error::other("full"));
        assert_eq!(error.downcast_ref::<std::io::Error>().map(ToString::to_string).as_deref(), Some("full"));
    }

    #[test]
    fn places_are_those_of_the_tests() {
        let way = ["/w/tests/bed/src/error.rs:29:9", "/rustc/1/library/core/src/convert/mod.rs:763:9"];
        let test = "/w/tests/tests/e2e/drift.rs:7:5";
        let lines = |[first, second]: [&str; 2]| {
            let all = [way[0], way[1], first, second, test, test];
            all.map(|place| format!("   1: a::b\n             at {place}\n")).concat()
        };
        for (folder, frames, expected) in [
            ("/w", ["./tests/bed/src/wait.rs:5:9", "./operator/src/a.rs:1:1"], "tests/bed/src/wait.rs:5:9"),
            ("/w/tests", ["./bed/src/wait.rs:5:9", "./release/a.rs:1:1"], "tests/bed/src/wait.rs:5:9"),
            ("/w/tests", ["./src/product.rs:7:1", "/w/operator/src/a.rs:1:1"], "tests/src/product.rs:7:1"),
            ("/w/tests/bed", ["./src/wait.rs:5:9", "/w/tests/build.rs:1:1"], "tests/bed/src/wait.rs:5:9"),
        ] {
            let places = places(&lines(frames), Path::new(folder));
            assert_eq!(places, [expected, "tests/tests/e2e/drift.rs:7:5"], "{folder}");
        }
    }
}
