//! Errors of the fixture and of the tests, which know on which way they arose.

use std::backtrace::Backtrace;
use std::fmt;
use std::ops::Deref;

/// Folders of this package with the code of the tests.
const FOLDERS: [&str; 3] = ["src/", "tests/", "benches/"];

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
        let way = self.0.way.to_string();
        places(&way).iter().try_for_each(|place| write!(formatter, "\n  at {place}"))
    }
}

/// The lines of the tests in a backtrace, without that of [`Error::from`].
fn places(backtrace: &str) -> Vec<String> {
    let all = backtrace.lines().filter_map(|line| line.trim_start().strip_prefix("at "));
    // A path is shown from the working directory on, which may be that of the package.
    let own = |place: &str| {
        let of_workspace = FOLDERS.iter().find_map(|folder| place.rfind(&format!("tests/{folder}")));
        let of_package = || place.strip_prefix("./").filter(|inside| FOLDERS.iter().any(|f| inside.starts_with(f)));
        let found = of_workspace.map(|start| place[start..].to_owned());
        found.or_else(|| of_package().map(|inside| format!("tests/{inside}")))
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
        let [first, second] =
            [ARISES, PASSES].map(|line| text.find(&format!("\n  at tests/src/error.rs:{line}:")).unwrap_or(usize::MAX));
        assert!(text.starts_with("no answer\n") && first < second && second < text.len(), "{text}");
    }

    #[test]
    fn error_keeps_its_cause() {
        let error = Error::from(std::io::Error::other("full"));
        assert_eq!(error.downcast_ref::<std::io::Error>().map(ToString::to_string).as_deref(), Some("full"));
    }

    #[test]
    fn places_are_those_of_the_tests() {
        let way = ["/w/tests/src/error.rs:29:9", "/rustc/1/library/core/src/convert/mod.rs:763:9"];
        let test = "/w/tests/tests/e2e/drift.rs:7:5";
        let frames = way.into_iter().chain(["./tests/src/wait.rs:50:9", "./src/wait.rs:7:1", test, test]);
        let backtrace: String = frames.map(|place| format!("   1: a::b\n             at {place}\n")).collect();
        let expected = ["tests/src/wait.rs:50:9", "tests/src/wait.rs:7:1", "tests/tests/e2e/drift.rs:7:5"];
        assert_eq!(places(&backtrace), expected);
    }
}
