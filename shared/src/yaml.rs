//! YAML with the rules that Kubernetes uses: `y` and `n` are strings. Pure.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Why a text is not the YAML that was expected, or a value can't be written as YAML. It is one
/// line, which names the line and the column of the text.
#[derive(Debug, thiserror::Error)]
pub enum YamlError {
    /// The text is no YAML, or has another shape. The words are those for users: others name
    /// options of the library.
    #[error("{}", .0.render_with_formatter(&serde_saphyr::UserMessageFormatter))]
    Invalid(Box<serde_saphyr::Error>),
    /// The value has keys or numbers that YAML doesn't have.
    #[error(transparent)]
    Unwritable(#[from] serde_saphyr::SerializeError),
}

impl From<serde_saphyr::Error> for YamlError {
    fn from(error: serde_saphyr::Error) -> Self {
        Self::Invalid(Box::new(error))
    }
}

fn options() -> serde_saphyr::Options {
    serde_saphyr::options! { strict_booleans: true, with_snippet: false }
}

/// Parses the document in `text`; the error names the line.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, YamlError> {
    Ok(serde_saphyr::from_str_with_options(text, options())?)
}

/// Parses the document in `text` with the booleans of YAML 1.1: `y`, `yes`, `on`, `n`, `no` and
/// `off` are booleans, as in the Go operator's patches. Aliases may not expand it to more nodes
/// than it has bytes, so that many small documents cost no more than one large one. The error names
/// the line.
pub fn parse_with_all_booleans<T: DeserializeOwned>(text: &str) -> Result<T, YamlError> {
    let budget = serde_saphyr::budget! { max_nodes: text.len() + 1 };
    let options = serde_saphyr::options! { strict_booleans: false, with_snippet: false, budget: budget };
    Ok(serde_saphyr::from_str_with_options(text, options)?)
}

/// Parses all documents in the stream `text`; the error names the line.
pub fn parse_all<T: DeserializeOwned>(text: &str) -> Result<Vec<T>, YamlError> {
    Ok(serde_saphyr::from_multiple_with_options(text, options())?)
}

/// `value` as YAML.
pub fn write(value: &impl Serialize) -> Result<String, YamlError> {
    Ok(serde_saphyr::to_string(value)?)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn aliases_expand_to_less_than_the_text() {
        for text in ["", "a", "[,,]", "{a: , b: }", "- \n- \n-", "a: &x {b: c}\nd: *x", "[[],{},[[]]]"] {
            let error = parse_with_all_booleans::<Value>(text).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(!error.contains("too large"), "{text}: {error}");
        }
        let bomb = "a: &a [x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a]\nc: [*b,*b,*b,*b,*b,*b]";
        assert!(parse_with_all_booleans::<Value>(bomb).unwrap_err().to_string().contains("too large"));
    }

    #[test]
    fn strings_round_trip() {
        assert_eq!(
            parse::<Value>("{y: n, on: [yes, 1, '1', true]}").unwrap(),
            json!({"y": "n", "on": ["yes", 1, "1", true]})
        );
        let long = "word ".repeat(40);
        let awkward = json!([
            "y",
            "n",
            "yes",
            "no",
            "on",
            "off",
            "true",
            "null",
            "~",
            "",
            "1",
            "1e3",
            "0x1f",
            "010",
            "1_000",
            "1:30",
            "2026-01-01",
            " a ",
            "a: b",
            "- a",
            "# a",
            "a\nb",
            "a\n\n",
            "\ta",
            "é",
            "'",
            "\"",
            long,
            "=",
            "<<",
            ".inf",
            "|"
        ]);
        assert_eq!(parse::<Value>(&write(&awkward).unwrap()).unwrap(), awkward);
    }

    #[test]
    fn booleans_of_yaml_1_1() {
        let value = parse_with_all_booleans::<Value>("{a: [y, Yes, on, true, n, NO, off], b: ['y', yellow], y: 1}");
        assert_eq!(
            value.unwrap(),
            json!({"a": [true, true, true, true, false, false, false], "b": ["y", "yellow"], "y": 1})
        );
    }

    #[test]
    fn error_is_one_line_with_position() {
        let error = parse_all::<Value>("a: 1\n---\nb: [\n").unwrap_err().to_string();
        assert!(error.contains("line ") && !error.contains('\n'), "{error}");
    }

    #[test]
    fn error_names_no_options_of_the_library() {
        let error = parse::<Value>("spec: {}\na: 1\nspec: {}\n").unwrap_err().to_string();
        assert_eq!(error, "duplicate mapping key: spec not allowed here at line 3, column 1");
    }
}
