//! Limits the length of messages to what the API server accepts.

/// Maximum length of a condition's message, an event's note, or an error, in bytes.
pub const MAX_MESSAGE: usize = 1023;
/// Mark at the end of a shortened text.
const ELLIPSIS: &str = " …";

/// `text`, shortened at the end of a word if it has more than `most` bytes.
pub fn clip(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let mut end = most.saturating_sub(ELLIPSIS.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let kept = &text[..end];
    // If a space follows, the last word is complete.
    let kept = if text[end..].starts_with(char::is_whitespace) {
        kept
    } else {
        kept.rsplit_once(char::is_whitespace).map_or("", |(kept, _)| kept)
    };
    format!("{}{ELLIPSIS}", kept.trim_end_matches(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | ':' | '(')))
}

/// `text` on one line: white space, line breaks included, is one space.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The name among `known` that is most similar to `name`.
pub fn nearest<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let similarity = |k: &str| strsim::jaro_winkler(k, name);
    known.max_by(|a, b| similarity(a).total_cmp(&similarity(b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_shortened_at_word_boundary() {
        for (text, most, expected) in [
            ("one two three", 13, "one two three"),
            ("one two three", 12, "one two …"),
            ("one two, three four", 13, "one two …"),
            ("ünß ünß ünß", 13, "ünß …"),
            ("one two three", 11, "one two …"),
        ] {
            let clipped = clip(text, most);
            assert_eq!(clipped, expected);
            assert!(clipped.len() <= most);
        }
    }
}
