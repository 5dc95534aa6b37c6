//! Log lines in JSON, on one level: the fields of all spans around an event, and its own.

use std::fmt;

use jiff::{Timestamp, Unit};
use knative_operator_shared::text::{cut, is_obeyed};
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

/// Maximum length of the text in a field, in bytes. Users, spokes and Pods write some of them.
pub const MAX_FIELD: usize = 2048;

/// Formats events as JSON objects. Fields of inner spans and of the event replace those of the same
/// name.
pub struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut fields = Map::new();
        for span in context.event_scope().into_iter().flat_map(tracing_subscriber::registry::Scope::from_root) {
            let extensions = span.extensions();
            let formatted = extensions.get::<FormattedFields<N>>().map(|fields| fields.fields.as_str());
            if let Some(Ok(own)) = formatted.map(serde_json::from_str::<Map<String, Value>>) {
                fields.extend(own);
            }
        }
        event.record(&mut Fields(&mut fields));
        for value in fields.values_mut() {
            if let Value::String(text) = value
                && text.len() > MAX_FIELD
            {
                *text = cut(text, MAX_FIELD);
            }
        }
        let message = fields.remove("message").unwrap_or_default();
        let now = Timestamp::now();
        let head = [
            ("timestamp", Value::from(now.round(Unit::Microsecond).unwrap_or(now).to_string())),
            ("level", Value::from(event.metadata().level().as_str())),
            ("message", message),
        ];
        let tail = ("target", Value::from(event.metadata().target()));
        let mut separator = '{';
        for (name, value) in head
            .iter()
            .map(|(n, v)| (*n, v))
            .chain(fields.iter().map(|(n, v)| (n.as_str(), v)))
            .chain([(tail.0, &tail.1)])
        {
            write!(writer, "{separator}{}:", Value::from(name))?;
            write_json(&mut writer, value)?;
            separator = ',';
        }
        writeln!(writer, "}}")
    }
}

/// Writes `value`, with escapes for characters in it that terminals obey: they need none in JSON.
fn write_json(writer: &mut Writer<'_>, value: &Value) -> fmt::Result {
    let json = value.to_string();
    if !json.contains(is_obeyed) {
        return writer.write_str(&json);
    }
    for c in json.chars() {
        if is_obeyed(c) {
            write!(writer, "\\u{:04x}", u32::from(c))?;
        } else {
            writer.write_char(c)?;
        }
    }
    Ok(())
}

/// Records the fields of an event.
struct Fields<'f>(&'f mut Map<String, Value>);

impl Fields<'_> {
    fn set(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields<'_> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set(field, format!("{value:?}"));
    }
}

#[cfg(test)]
pub mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex, PoisonError};

    use tracing_subscriber::fmt::format::JsonFields;

    use super::*;

    /// Keeps what is logged.
    #[derive(Clone, Default)]
    pub struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl Buffer {
        /// What was logged.
        pub fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_have_the_fields_of_spans() {
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let subscriber = tracing_subscriber::fmt()
            .event_format(JsonLines)
            .fmt_fields(JsonFields::new())
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let span = tracing::info_span!("reconcile", kind = "KnativeServing", name = "a", generation = 3);
            let inner = tracing::info_span!(parent: &span, "write", name = "b", object = "Service \"x\"\nforged");
            inner.in_scope(|| tracing::warn!(why = %"line\nbreak\u{9b}2J\u{202e}", count = 2, "failed"));
            span.in_scope(|| tracing::info!(name = "own", "done"));
            let (long, list) = ("x".repeat(3000), vec![7; 3000]);
            let outer = tracing::info_span!("outer", of_span = long);
            outer.in_scope(|| tracing::info!(text = long, shown = %long, list = ?list, "{long}"));
        });
        let text = buffer.text();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert_eq!(lines[0]["message"], "failed");
        assert_eq!(
            (&lines[0]["kind"], &lines[0]["generation"], &lines[0]["count"]),
            (&"KnativeServing".into(), &3.into(), &2.into())
        );
        assert_eq!((&lines[0]["name"], &lines[0]["why"]), (&"b".into(), &"line\nbreak\u{9b}2J\u{202e}".into()));
        assert!(text.contains(r#""line\nbreak\u009b2J\u202e""#), "{text}");
        assert_eq!((&lines[1]["name"], &lines[1]["level"]), (&"own".into(), &"INFO".into()));
        for field in ["of_span", "text", "shown", "list", "message"] {
            let text = lines[2][field].as_str().unwrap();
            assert!(text.len() <= MAX_FIELD && text.ends_with(" more bytes)"), "{field}: {text}");
        }
        assert!(text.starts_with("{\"timestamp\":\"") && text.lines().all(|line| line.ends_with("\"}")), "{text}");
    }
}
