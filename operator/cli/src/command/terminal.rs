//! What terminals obey: control sequences of this program, while those in texts from clusters and
//! users are shown; and questions on the terminal.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io::{BufRead, IsTerminal, Write};
use std::sync::LazyLock;

use knative_operator_shared::text::show_controls;

/// The parameters that this program's sequences begin with, until [`visible`] removes them. They
/// are random, from keys of the system (fastrand is seeded by the time), so no text from elsewhere
/// has them. A parameter has four digits, the most that `console` takes for a part of a sequence
/// when it measures a text.
static MARK: LazyLock<String> = LazyLock::new(|| {
    let random = RandomState::new().build_hasher().finish();
    (0..4).map(|part| format!("{:04};", (random >> (16 * part)) & 0x1fff)).collect()
});

/// The control sequence `ESC [ rest`, with the mark.
pub fn sequence(rest: &str) -> String {
    format!("\x1b[{}{rest}", *MARK)
}

/// `text` with the graphic rendition `code`, such as 1 for bold.
pub fn styled(code: &str, text: &str) -> String {
    format!("{}{text}{}", sequence(&format!("{code}m")), sequence("0m"))
}

/// `text` for a terminal: with the sequences of this program, and other control characters as
/// escapes.
pub fn visible(text: &str) -> String {
    text.split(sequence("").as_str()).map(show_controls).collect::<Vec<_>>().join("\x1b[")
}

/// Fails if there is no terminal to ask on, and names the flags to use `instead`.
pub fn needed(instead: &str) -> Result<(), String> {
    if std::io::stdin().is_terminal() {
        return Ok(());
    }
    Err(format!("nobody can be asked: there is no terminal; use {instead}"))
}

/// Asks on the terminal; fails if there is none.
pub fn confirmed(question: &str) -> Result<bool, String> {
    needed("--yes")?;
    let mut stderr = std::io::stderr();
    let _ = stderr.write_all(visible(question).as_bytes()).and_then(|()| stderr.flush());
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(|error| error.to_string())?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_sequences_are_obeyed() {
        let foreign = "a\u{1b}[31mb\u{1b}]0;title\u{7}\u{9b}2J";
        let shown = r"a\u{1b}[31mb\u{1b}]0;title\u{7}\u{9b}2J";
        assert_eq!(visible(foreign), shown);
        assert_eq!(visible(&styled("31", foreign)), format!("\u{1b}[31m{shown}\u{1b}[0m"));
        assert_eq!(visible(&format!("{}{foreign}\n", sequence("J"))), format!("\u{1b}[J{shown}\n"));
        let guessed = "\u{1b}[0;0;0;0;31m";
        assert_eq!(visible(guessed), r"\u{1b}[0;0;0;0;31m");
        assert_eq!(console::measure_text_width(&styled("31", "ab")), 2);
    }
}
