//! What to do about a problem, and how a terminal shows it.

use serde::Serialize;

/// Programs whose commands have lines of their own on a terminal.
const PROGRAMS: [&str; 3] = ["helm ", "kubectl ", "knative-operator "];

/// What to do about a problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Advice {
    /// The remedy in Markdown, with the names of the resource.
    pub text: String,
    /// The remedy for all resources with this problem, as in docs/user/troubleshooting.md.
    pub general: String,
    /// Whether the problem can end without it.
    pub can_recover: bool,
}

impl Advice {
    /// The remedy for a terminal, without Markdown. Commands have indented lines of their own, so
    /// that users can copy them.
    pub fn lines(&self) -> Vec<String> {
        let mut text = "What to do: ".to_owned();
        for (index, part) in self.text.split('`').enumerate() {
            let is_code = index % 2 == 1;
            if is_code && PROGRAMS.iter().any(|program| part.starts_with(program)) {
                text.extend(["\n  ", part, "\n"]);
            } else if is_code {
                text.push_str(part);
            } else {
                text.push_str(&without_links(part));
            }
        }
        let tidy = |line: &str| {
            let prose = || line.trim_start_matches([';', ' ']).trim_end();
            (if line.starts_with("  ") { line } else { prose() }).to_owned()
        };
        text.lines().map(tidy).filter(|line| !line.is_empty()).collect()
    }
}

/// `text` with the path of the document after the text of each link.
fn without_links(text: &str) -> String {
    let (mut plain, mut rest) = (String::new(), text);
    while let Some((before, label, path, after)) = first_link(rest) {
        plain.extend([before, label, " (", &path, ")"]);
        rest = after;
    }
    plain + rest
}

/// The first link in `text`: what is before it, its text, the path of its document, and what is
/// after it. Links are relative to docs/user.
fn first_link(text: &str) -> Option<(&str, &str, String, &str)> {
    let (before, rest) = text.split_once('[')?;
    let (label, rest) = rest.split_once("](")?;
    let (target, after) = rest.split_once(')')?;
    let path = target.split('#').next().unwrap_or_default();
    let path = path.strip_prefix("../").map_or_else(|| format!("user/{path}"), str::to_owned);
    Some((before, label, format!("docs/{path}"), after))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        Advice { text: text.to_owned(), general: String::new(), can_recover: true }.lines()
    }

    #[test]
    fn terminals_get_no_markdown_and_commands_on_their_own_lines() {
        assert_eq!(lines("Wait: it ends."), ["What to do: Wait: it ends."]);
        assert_eq!(
            lines(
                "Set `spec.version`, as in [Back up](../operate/a.md#b) and [C](c.md): `kubectl patch x -p '{\"a\":[{}]}'`"
            ),
            [
                "What to do: Set spec.version, as in Back up (docs/operate/a.md) and C (docs/user/c.md):",
                "  kubectl patch x -p '{\"a\":[{}]}'"
            ]
        );
        assert_eq!(
            lines("Correct it: `kubectl edit a`; or go back: `helm rollback b`; or wait"),
            ["What to do: Correct it:", "  kubectl edit a", "or go back:", "  helm rollback b", "or wait"]
        );
    }
}
