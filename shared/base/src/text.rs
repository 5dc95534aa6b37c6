//! Limits the length of messages to what the API server accepts, and shows control characters.

/// Maximum length of a condition's message, an event's note, or an error, in bytes.
pub const MAX_MESSAGE: usize = 1023;
/// Similarity of two names, from 0 to 1 (Jaro-Winkler), of which one may be meant by the other.
const LEAST_SIMILARITY: f64 = 0.7;
/// Maximum length of a name in Kubernetes, in bytes.
const MAX_NAME: usize = 253;
/// Mark at the end of a shortened text.
const ELLIPSIS: &str = " …";

/// `text`, shortened at the end of a word if it has more than `most` bytes.
pub fn clip(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let kept = start(text, most.saturating_sub(ELLIPSIS.len()));
    // If a space follows, the last word is complete.
    let kept = if text[kept.len()..].starts_with(char::is_whitespace) {
        kept
    } else {
        kept.rsplit_once(char::is_whitespace).map_or("", |(kept, _)| kept)
    };
    format!("{}{ELLIPSIS}", kept.trim_end_matches(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | ':' | '(')))
}

/// The characters of `text` in its first `most` bytes.
pub fn start(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// `text` in at most `most` bytes. A longer one is cut, with the number of bytes that are left out:
/// for logs, whose readers must know that there was more.
pub fn cut(text: &str, most: usize) -> String {
    let mark = |bytes: usize| format!("{ELLIPSIS} ({bytes} more bytes)");
    if text.len() <= most {
        return text.to_owned();
    }
    let kept = start(text, most.saturating_sub(mark(text.len()).len()));
    format!("{kept}{}", mark(text.len() - kept.len()))
}

/// `text` on one line: white space, line breaks included, is one space.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether terminals and editors obey `c`: a control character other than a tab or line break, a
/// separator of lines, or a character that changes the direction of writing.
pub fn is_obeyed(c: char) -> bool {
    let is_control = c.is_control() && !matches!(c, '\t' | '\n');
    let is_direction =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    is_control || is_direction
}

/// `text` with escapes such as `\u{1b}` in place of the characters that terminals and editors obey.
pub fn show_controls(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_obeyed(c) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// `text` in at most `most` bytes, without characters that terminals obey. It may have any size.
pub fn shown(text: &str, most: usize) -> String {
    clip(&show_controls(&clip(text, most)), most)
}

/// How many others there are, after those that are named; empty if there are none.
pub fn and_more(others: usize) -> String {
    if others == 0 { String::new() } else { format!(" and {others} more") }
}

/// The name among `known` that is most similar to `name`, or to the start of a longer one than
/// Kubernetes has: the time grows with the lengths of both. `None` if all are other words.
pub fn nearest<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let name = start(name, MAX_NAME);
    let similar = known.map(|known| (strsim::jaro_winkler(known, name), known));
    let similar = similar.filter(|(similarity, _)| *similarity >= LEAST_SIMILARITY);
    similar.max_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_name_is_found_for_a_text_of_any_length() {
        let known = ["controller", "activator", "webhook"];
        assert_eq!(nearest("activater", known.into_iter()), Some("activator"));
        assert_eq!(nearest("a", std::iter::empty()), None);
        let (text, long) = ("a".repeat(4 << 20), "a".repeat(253));
        assert_eq!(nearest(&text, std::iter::repeat_n(long.as_str(), 50)), Some(long.as_str()));
    }

    #[test]
    fn others_are_counted_if_there_are_some() {
        assert_eq!([0, 1, 12].map(and_more), ["", " and 1 more", " and 12 more"]);
    }

    #[test]
    fn control_characters_are_shown() {
        for (text, expected) in [
            ("a\tb\n", "a\tb\n"),
            ("ünß ✔ 漢", "ünß ✔ 漢"),
            ("\u{1b}[2J\r\u{0}\u{7f}", r"\u{1b}[2J\u{d}\u{0}\u{7f}"),
            ("\u{9b}31m\u{85}", r"\u{9b}31m\u{85}"),
            ("a\u{202e}b\u{2069}c\u{200f}\u{2028}", r"a\u{202e}b\u{2069}c\u{200f}\u{2028}"),
        ] {
            assert_eq!(show_controls(text), expected);
        }
    }

    #[test]
    fn nearest_name_has_something_in_common() {
        let known = ["activator", "activator-pdb", "config", "high-availability"];
        let nearest = |name: &str| nearest(name, known.into_iter());
        for (name, expected) in [
            ("activater", Some("activator")),
            ("activ", Some("activator")),
            ("confg", Some("config")),
            ("ha", Some("high-availability")),
            ("main", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(name), expected, "{name}");
        }
        assert_eq!(super::nearest("a", std::iter::empty()), None);
    }

    #[test]
    fn cut_text_says_how_much_is_left_out() {
        assert_eq!(cut("a ünß", 7), "a ünß");
        assert_eq!(cut(&"a".repeat(40), 30), "aaaaaaaaaa … (30 more bytes)");
        for most in 30..60 {
            let (text, cut) = ("ü".repeat(100), cut(&"ü".repeat(100), most));
            assert!(cut.len() <= most, "{cut}");
            let kept = cut.trim_end_matches(|c: char| c != 'ü');
            assert!(cut.ends_with(&format!(" … ({} more bytes)", text.len() - kept.len())), "{cut}");
        }
    }

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
