//! Pictures of what commands print on a terminal, as SVG for the documents.

use std::fmt::Write;
use std::path::Path;
use std::process::Stdio;

use crate::{Result, environment, tools};

/// Width of the terminal, in characters.
const COLUMNS: usize = 110;
/// Additional indentation of the rest of a line that is too long.
const INDENT: usize = 4;
/// Width of a character, height of a line, and margin, in pixels.
const SIZES: (usize, usize, usize) = (8, 18, 16);
/// Background, text, and the prompt.
const COLORS: [&str; 3] = ["#10151c", "#e6e9ee", "#9aa4b2"];

/// Runs `knative-operator` with `arguments` on a terminal, with `kubeconfig`. Writes a picture to
/// `target/ui/NAME.svg`, and to `docs/images` if `UPDATE_IMAGES` is set. Returns the picture.
pub async fn of_command(kubeconfig: &Path, name: &str, arguments: &str) -> Result<String> {
    let (binary, home) = (tools::binary("knative-operator")?, tempfile::tempdir()?);
    let script = format!("stty cols {COLUMNS} rows 100; exec {} {arguments}", binary.display());
    let mut command = std::process::Command::new("script");
    environment::confine(command.args(["-qec", &script, "/dev/null"]), home.path())
        .env("KUBECONFIG", kubeconfig)
        .envs([("TERM", "xterm-256color"), ("LANG", "C.UTF-8")]);
    let output = tokio::process::Command::from(command).stdin(Stdio::null()).output().await?;
    let text = String::from_utf8(output.stdout)?.replace('\r', "");
    if text.trim().is_empty() {
        return Err(format!("{script}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    of_text(name, arguments, &text)
}

/// The picture of `knative-operator` with `arguments`, which prints `text`; stored as
/// [`of_command`] does.
pub fn of_text(name: &str, arguments: &str, text: &str) -> Result<String> {
    let picture = svg(&format!("knative-operator {arguments}"), text);
    let folder = tools::project().join("target/ui");
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join(format!("{name}.svg")), &picture)?;
    if std::env::var_os("UPDATE_IMAGES").is_some() {
        std::fs::write(tools::project().join(format!("docs/images/{name}.svg")), &picture)?;
    }
    Ok(picture)
}

/// The picture of the command line `prompt` and its output `text`, which has colors.
fn svg(prompt: &str, text: &str) -> String {
    let (character, height, margin) = SIZES;
    let [background, foreground, dim] = COLORS;
    let lines: Vec<String> = text.trim_end().lines().flat_map(wrapped).collect();
    let (width, full) = (COLUMNS * character + 2 * margin, (lines.len() + 1) * height + 2 * margin);
    let mut picture = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {full}\" role=\"img\" \
         font-family=\"ui-monospace, SFMono-Regular, Menlo, Consolas, monospace\" font-size=\"13\">\n\
         <title>{}</title>\n<rect width=\"{width}\" height=\"{full}\" rx=\"8\" fill=\"{background}\"/>\n",
        escaped(prompt)
    );
    let mut style = String::new();
    let prompt = format!("\x1b[2m$\x1b[0m {prompt}");
    for (number, line) in [prompt.as_str()].into_iter().chain(lines.iter().map(String::as_str)).enumerate() {
        let y = margin + (number + 1) * height - 4;
        let spans = spans(line, dim, &mut style);
        // Writing to a String can't fail.
        let _ = writeln!(
            picture,
            "<text x=\"{margin}\" y=\"{y}\" fill=\"{foreground}\" xml:space=\"preserve\">{spans}</text>"
        );
    }
    picture + "</svg>\n"
}

/// `line` in parts that fit the terminal, broken at spaces, each in its place of a tree. A line
/// with colors fits already.
fn wrapped(line: &str) -> Vec<String> {
    if line.contains('\x1b') || line.chars().count() <= COLUMNS {
        return vec![line.to_owned()];
    }
    let start: String = line.chars().take_while(|character| [' ', '│'].contains(character)).collect();
    let (mut parts, mut part) = (Vec::new(), String::new());
    for (number, word) in line.split(' ').enumerate() {
        if number > 0 && part.chars().count() + 1 + word.chars().count() > COLUMNS {
            parts.push(std::mem::replace(&mut part, format!("{start}{}", " ".repeat(INDENT - 1))));
        }
        if number > 0 {
            part.push(' ');
        }
        part.push_str(word);
    }
    parts.push(part);
    parts
}

/// The parts of `line`. `style` has the attributes in force, which may be those of the line before.
fn spans(line: &str, dim: &str, style: &mut String) -> String {
    let mut spans = String::new();
    for (number, part) in line.split("\x1b[").enumerate() {
        let (code, text) = if number == 0 { ("", part) } else { part.split_once('m').unwrap_or(("", part)) };
        let (attribute, value) = match code {
            "1" => ("font-weight", "bold"),
            "2" => ("fill", dim),
            "31" => ("fill", "#ff8d85"),
            "32" => ("fill", "#5fd38d"),
            "33" => ("fill", "#f0c75e"),
            "36" => ("fill", "#6cc7e6"),
            _ => ("", ""),
        };
        if !attribute.is_empty() && !style.contains(attribute) {
            let _ = write!(style, " {attribute}=\"{value}\"");
        } else if number > 0 && attribute.is_empty() {
            style.clear();
        }
        if !text.is_empty() {
            let _ = write!(spans, "<tspan{style}>{}</tspan>", escaped(text));
        }
    }
    spans
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colors_of_a_terminal_are_those_of_the_picture() {
        let picture = svg("a <b>", "\x1b[1m\x1b[32mReady\x1b[0m & plain\n\x1b[31mred\nstill red\x1b[0m\n\n");
        for line in [
            "<title>a &lt;b&gt;</title>",
            "<tspan fill=\"#9aa4b2\">$</tspan><tspan> a &lt;b&gt;</tspan></text>",
            "<tspan font-weight=\"bold\" fill=\"#5fd38d\">Ready</tspan><tspan> &amp; plain</tspan></text>",
            "<tspan fill=\"#ff8d85\">red</tspan></text>",
            "<tspan fill=\"#ff8d85\">still red</tspan></text>",
        ] {
            assert!(picture.contains(line), "{line}: {picture}");
        }
        assert_eq!(picture.matches("<text ").count(), 4, "{picture}");
        assert!(picture.contains("viewBox=\"0 0 912 104\"") && !picture.contains('\x1b'), "{picture}");
    }

    #[test]
    fn long_lines_are_broken_at_spaces() {
        let line = format!("{} {} end", "a".repeat(COLUMNS - 1), "b".repeat(20));
        assert_eq!(wrapped(&line), ["a".repeat(COLUMNS - 1), format!("    {} end", "b".repeat(20))]);
        assert_eq!(wrapped("  short"), ["  short"]);
        let line = format!("│  {} end", "a".repeat(COLUMNS - 3));
        assert_eq!(wrapped(&line), [format!("│  {}", "a".repeat(COLUMNS - 3)), "│      end".to_owned()]);
    }
}
