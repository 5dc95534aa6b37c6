//! The flag `--kind`.

use clap::builder::{PossibleValuesParser, TypedValueParser};

/// Parses one of `kinds`: in any letter case, if the flag has `ignore_case`.
pub fn kind_among<const N: usize>(kinds: [&'static str; N]) -> impl TypedValueParser<Value = &'static str> + use<N> {
    let named = move |word: String| kinds.into_iter().find(|kind| kind.eq_ignore_ascii_case(&word)).unwrap_or_default();
    PossibleValuesParser::new(kinds).map(named)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[arg(long, ignore_case = true, value_parser = kind_among(["KnativeServing", "KnativeEventing"]))]
        kind: Option<&'static str>,
    }

    #[test]
    fn kinds_have_any_case() {
        for word in ["KnativeServing", "knativeserving", "KNATIVESERVING"] {
            assert_eq!(Line::try_parse_from(["x", "--kind", word]).unwrap().kind, Some("KnativeServing"));
        }
        let error = Line::try_parse_from(["x", "--kind", "serving"]).unwrap_err().to_string();
        assert!(error.contains("[possible values: KnativeServing, KnativeEventing]"), "{error}");
    }
}
