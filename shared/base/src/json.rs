//! What a JSON text takes once it is parsed. Pure.

/// Memory of an object with one short value, in bytes: the first node of its tree.
const OBJECT: usize = 704;
/// Memory of each further value, in bytes, with its key.
const VALUE: usize = 96;
/// Up to this estimate, in bytes, nobody cares whether a part is within a string.
const SMALL: usize = 256 << 10;

/// Memory of the `Value` that `text` is parsed to, in bytes, estimated from above for short
/// strings. Long strings take what they take in the text.
pub fn memory_of(text: &[u8]) -> usize {
    let count = |byte| memchr::memchr_iter(byte, text).count();
    let upper = OBJECT * count(b'{') + VALUE * (count(b',') + count(b'['));
    if upper <= SMALL { upper } else { outside_of_strings(text) }
}

/// The same, of what is not within strings.
fn outside_of_strings(text: &[u8]) -> usize {
    Estimate::default().add(text)
}

/// An estimate of that memory while the text arrives in parts.
#[derive(Clone, Debug, Default)]
pub struct Estimate {
    memory: usize,
    is_string: bool,
    is_escaped: bool,
}

impl Estimate {
    /// Adds the next part; returns the memory for all parts, in bytes. What is within strings
    /// doesn't count.
    pub fn add(&mut self, part: &[u8]) -> usize {
        for byte in part {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' if self.is_string => self.is_escaped = true,
                b'"' => self.is_string = !self.is_string,
                b'{' if !self.is_string => self.memory += OBJECT,
                b',' | b'[' if !self.is_string => self.memory += VALUE,
                _ => {}
            }
        }
        self.memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_from_above() {
        for (text, expected) in [
            ("", 0),
            ("7", 0),
            ("[0,0,0]", 3 * VALUE),
            (r#"{"a":{"b":1,"c":"x,y"}}"#, 2 * OBJECT + VALUE),
            (r#"{"a":"\"{[,\\","b":0}"#, OBJECT + VALUE),
        ] {
            let (exact, estimate) = (outside_of_strings(text.as_bytes()), memory_of(text.as_bytes()));
            assert_eq!(exact, expected, "{text}");
            assert!(estimate >= exact, "{text}");
            let mut parts = Estimate::default();
            let in_parts = text.as_bytes().chunks(1).map(|part| parts.add(part)).last().unwrap_or_default();
            assert_eq!(in_parts, exact, "{text}");
        }
    }

    #[test]
    fn no_key_is_special() {
        // With its feature `raw_value`, serde_json would parse the text of this key, without limits
        // on depth and memory.
        for key in ["$serde_json::private::RawValue", "$serde_json::private::Number"] {
            let value = serde_json::json!({"a": {key: "7"}});
            assert_eq!(serde_json::from_str::<serde_json::Value>(&value.to_string()).unwrap(), value);
        }
    }

    #[test]
    fn long_strings_are_not_taken_for_values() {
        let csv = format!(r#"{{"a":"{}"}}"#, "1,2,3;".repeat(100_000));
        assert_eq!(memory_of(csv.as_bytes()), OBJECT);
    }
}
