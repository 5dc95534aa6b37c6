//! Text for people, kept to the lengths that the API server takes.

/// Longest message of a condition, note of an event, or error, in bytes.
pub const MAX_MESSAGE: usize = 1023;
/// Ends a text that was cut.
const CUT: &str = " …";

/// `text`, cut at the end of a word if it has more than `most` bytes.
pub fn clip(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let mut end = most.saturating_sub(CUT.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let kept = &text[..end];
    // Where the text goes on with a space, the last word is whole.
    let kept = if text[end..].starts_with(char::is_whitespace) {
        kept
    } else {
        kept.rsplit_once(char::is_whitespace).map_or("", |(kept, _)| kept)
    };
    format!("{}{CUT}", kept.trim_end_matches(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | ':' | '(')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_at_a_word() {
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
