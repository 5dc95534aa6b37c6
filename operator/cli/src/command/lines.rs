//! The lines of fields in a file with resources.

use std::collections::HashMap;
use std::ops::Range;

/// The lines of a file, YAML in block style. In other files, lines are those of documents.
pub struct Lines<'a> {
    lines: Vec<&'a str>,
    /// The document of each resource, by kind and name; `None` if several have them.
    resources: HashMap<String, Option<Range<usize>>>,
    /// The document, if the file has one.
    only: Option<Range<usize>>,
}

impl<'a> Lines<'a> {
    /// The lines of `text`.
    pub fn of(text: &'a str) -> Self {
        let mut lines = Self { lines: text.lines().collect(), resources: HashMap::new(), only: None };
        let documents = lines.documents();
        for document in &documents {
            let called = lines.called(document);
            let resource = lines.resources.entry(called);
            resource.and_modify(|known| *known = None).or_insert_with(|| Some(document.clone()));
        }
        lines.only = if documents.len() == 1 { documents.into_iter().next() } else { None };
        lines
    }

    /// The line, from 1 on, of the field with the path `field` of the resource `what`, which is its
    /// kind and its name; or that of the nearest field around it that is there, or that of its
    /// document. `None` if several documents could be meant.
    pub fn of_field(&self, what: &str, field: &str) -> Option<usize> {
        let document = match self.resources.get(what) {
            Some(found) => found.clone()?,
            None => self.only.clone()?,
        };
        let mut at = document.clone().find(|number| self.is_content(*number))?;
        let (mut from, mut parent) = (at, None);
        for key in field.split(['.', '[', ']']).filter(|key| !key.is_empty()) {
            let Some(found) = self.child(from..document.end, parent, key) else { break };
            (at, from, parent) = (found, found + 1, Some(self.indent(found)));
        }
        Some(at + 1)
    }

    /// The documents that are not empty.
    fn documents(&self) -> Vec<Range<usize>> {
        let (mut all, mut start) = (Vec::new(), 0);
        let is_start = |line: &str| line.trim_end() == "---" || line.starts_with("--- ");
        let starts = self.lines.iter().enumerate().filter(|(_, line)| is_start(line)).map(|(number, _)| number);
        for end in starts.chain([self.lines.len()]) {
            if (start..end).any(|number| self.is_content(number)) {
                all.push(start..end);
            }
            start = end;
        }
        all
    }

    /// Kind and name of the resource in `document`.
    fn called(&self, document: &Range<usize>) -> String {
        let text = |number: usize, key: &str| value(self.lines[number], key).map(plain);
        let kind = self.child(document.clone(), None, "kind").and_then(|number| text(number, "kind"));
        let name = self.child(document.clone(), None, "metadata").and_then(|number| {
            let below = self.child(number + 1..document.end, Some(self.indent(number)), "name");
            let mut fields = value(self.lines[number], "metadata")?.trim_matches(['{', '}']).split(',');
            let in_line = || fields.find_map(|field| value(field, "name").map(plain));
            below.and_then(|number| text(number, "name")).or_else(in_line)
        });
        format!("{} {}", kind.unwrap_or_default(), name.unwrap_or_default())
    }

    /// The line in `range` with the field `key` of the field whose indentation is `parent`, or of
    /// the document.
    fn child(&self, range: Range<usize>, parent: Option<usize>, key: &str) -> Option<usize> {
        let content = range.filter(|number| self.is_content(*number));
        let mut inside = content.take_while(|number| parent.is_none_or(|parent| self.indent(*number) > parent));
        let first = inside.next()?;
        let depth = self.indent(first);
        let mut fields = std::iter::once(first).chain(inside).filter(|number| self.indent(*number) == depth);
        fields.find(|number| value(self.lines[*number], key).is_some())
    }

    /// Whether the line is neither empty, nor a comment, nor the start of a document.
    fn is_content(&self, number: usize) -> bool {
        let line = self.lines[number].trim();
        !line.is_empty() && !line.starts_with('#') && line != "---"
    }

    fn indent(&self, number: usize) -> usize {
        let line = self.lines[number];
        line.len() - line.trim_start_matches(' ').len()
    }
}

/// What follows the key of `line`, if it is `key`.
fn value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let content = line.trim_start();
    let rest = match content.strip_prefix(['"', '\'']) {
        Some(quoted) => quoted.strip_prefix(key)?.strip_prefix(['"', '\''])?,
        None => content.strip_prefix(key)?,
    };
    let value = rest.strip_prefix(':')?;
    (value.is_empty() || value.starts_with([' ', '\t'])).then(|| value.trim())
}

/// The scalar `text` without comment and quotes.
fn plain(text: &str) -> &str {
    text.split(" #").next().unwrap_or_default().trim().trim_matches(['"', '\''])
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
# Knative
apiVersion: operator.knative.dev/v1beta1
kind: KnativeServing # the kind
metadata:
  name: 'a'
  namespace: n
spec:
  ingress:
    # a comment
    kourier:
      enabled: yes

  workloads:
  - name: version
  version: x
---
kind: KnativeServing
metadata: {namespace: n, name: b}
spec:
  \"version\": y
";

    #[test]
    fn lines_are_those_of_the_nearest_field() {
        let lines = Lines::of(FILE);
        for (what, field, expected) in [
            ("KnativeServing a", "kind", Some(3)),
            ("KnativeServing a", "metadata.name", Some(5)),
            ("KnativeServing a", "spec.ingress.kourier.enabled", Some(11)),
            ("KnativeServing a", "spec.ingress.kourier.none", Some(10)),
            ("KnativeServing a", "spec.version", Some(15)),
            ("KnativeServing a", "spec.workloads[0].name", Some(13)),
            ("KnativeServing a", "name", Some(2)),
            ("KnativeServing b", "spec.version", Some(20)),
            ("KnativeServing b", "spec.none", Some(19)),
            ("KnativeServing c", "spec.version", None),
        ] {
            assert_eq!(lines.of_field(what, field), expected, "{what}: {field}");
        }
    }

    #[test]
    fn lines_are_not_guessed() {
        let twice = FILE.replace("name: b", "name: a");
        assert_eq!(Lines::of(&twice).of_field("KnativeServing a", "spec.version"), None);
        // Another style has the line of its document.
        let flow = "\n{kind: KnativeServing, metadata: {name: a}, spec: {version: x}}\n";
        assert_eq!(Lines::of(flow).of_field("KnativeServing a", "spec.version"), Some(2));
        assert_eq!(Lines::of(&format!("{flow}---{flow}")).of_field("KnativeServing a", "spec.version"), None);
        for text in ["", "\n---\n", "# x", "- a\n- b", "\u{feff}---\r\nkind: x\r\n"] {
            let _ = Lines::of(text).of_field("KnativeServing a", "spec.version");
        }
    }
}
