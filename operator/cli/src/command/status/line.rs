//! Lines of a tree: colors, branches, and the width of the terminal.

use console::{Term, measure_text_width};

use crate::command::terminal::styled;
use knative_operator_overview::State;

/// Minimum width of a text before it continues on the next line.
const MIN_TEXT: usize = 24;

/// How to print.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Whether colors are used. `NO_COLOR` and pipes have none.
    pub colors: bool,
    /// Whether branches are drawn with box characters. Other locales than UTF-8 have ASCII.
    pub unicode: bool,
    /// Width in columns; `None` if lines have no limit.
    pub width: Option<usize>,
}

impl Style {
    /// The style for stdout.
    pub fn of_stdout() -> Self {
        let term = Term::stdout();
        let width = term.is_term().then(|| usize::from(term.size().1)).filter(|width| *width > 0);
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
        let is_utf8 = locale.to_uppercase().replace('-', "").contains("UTF8");
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { colors: width.is_some() && !no_color && console::colors_enabled(), unicode: is_utf8, width }
    }

    /// Without colors and limits, for pipes and tests.
    #[cfg(test)]
    pub const fn plain() -> Self {
        Self { colors: false, unicode: true, width: None }
    }

    /// `text` in the color of `state`.
    pub fn state(&self, state: State, text: &str) -> String {
        let code = match state {
            State::Ready => "32",
            State::Pending | State::Terminating => "2",
            State::Progressing => "36",
            State::Degraded => "33",
            State::Unreachable | State::Failed => "31",
        };
        if self.colors { styled(code, text) } else { text.to_owned() }
    }

    /// `text` in bold.
    pub fn bold(&self, text: &str) -> String {
        if self.colors { styled("1", text) } else { text.to_owned() }
    }

    /// The symbol of `state`, which differs without colors, too.
    pub fn symbol(&self, state: State) -> &'static str {
        match (state, self.unicode) {
            (State::Ready, true) => "✔",
            (State::Ready, false) => "+",
            (State::Pending, _) => "-",
            (State::Progressing, true) => "…",
            (State::Progressing, false) => "~",
            (State::Terminating, true) => "⌫",
            (State::Terminating, false) => "<",
            (State::Degraded, _) => "!",
            (State::Unreachable, _) => "?",
            (State::Failed, true) => "✘",
            (State::Failed, false) => "x",
        }
    }

    /// `text` below the branches `prefix`, on as many lines as it needs. Further lines begin with
    /// `indent`. An indented text is a command, which users copy: it stays on one line.
    pub fn lines(&self, prefix: &str, indent: &str, text: &str) -> String {
        let first = self.width.map(|width| width.saturating_sub(measure_text_width(prefix)).max(MIN_TEXT));
        let rest = self.width.map(|width| width.saturating_sub(measure_text_width(indent)).max(MIN_TEXT));
        if text.starts_with("  ") || first.is_none_or(|limit| measure_text_width(text) <= limit) {
            return format!("{prefix}{}\n", text.replace('\n', " "));
        }
        let (mut lines, mut line) = (Vec::new(), String::new());
        for word in text.split_whitespace() {
            let limit = if lines.is_empty() { first } else { rest };
            let width = measure_text_width(&line) + 1 + measure_text_width(word);
            if !line.is_empty() && limit.is_some_and(|limit| width > limit) {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        lines.push(line);
        format!("{prefix}{}\n", lines.join(&format!("\n{indent}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_continues_below() {
        let style = Style { width: Some(30), ..Style::plain() };
        assert_eq!(
            style.lines("- ", "  ", "one two three four five six seven"),
            "- one two three four five six\n  seven\n"
        );
        let command = "  kubectl describe pods -n knative-serving";
        assert_eq!(style.lines("- ", "  ", command), format!("- {command}\n"));
        let narrow = Style { width: Some(4), ..style };
        assert_eq!(narrow.lines("", "", "abcdefghijklmnopqrstuvwxyz abc"), "abcdefghijklmnopqrstuvwxyz\nabc\n");
        assert_eq!(Style::plain().lines("", "", &"a ".repeat(200)).lines().count(), 1);
    }

    #[test]
    fn symbols_differ_without_colors() {
        for unicode in [true, false] {
            let style = Style { unicode, ..Style::plain() };
            let symbols: std::collections::BTreeSet<_> =
                State::WORST_FIRST.iter().map(|state| style.symbol(*state)).collect();
            assert_eq!(symbols.len(), State::WORST_FIRST.len());
        }
        assert_eq!(Style::plain().state(State::Failed, "Failed"), "Failed");
        assert!(Style { colors: true, ..Style::plain() }.state(State::Failed, "x").contains("\u{1b}["));
    }
}
