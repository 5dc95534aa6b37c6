//! Reads JSON values strictly: a list is not an object. Derived code of serde takes a list as the
//! fields of a struct in their order, so `[]` would be a struct with all defaults.

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, Deserializer, Error as _, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Error, Value};

/// A value to read.
#[derive(Clone, Copy, Debug)]
pub struct Strict<'de>(pub &'de Value);

/// Reads `value`.
///
/// # Errors
///
/// The field that has another type, and both types.
pub fn read<T: DeserializeOwned>(value: &Value) -> Result<T, Error> {
    T::deserialize(Strict(value))
}

impl<'de> IntoDeserializer<'de, Error> for Strict<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Strict<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Array(items) => visitor.visit_seq(SeqDeserializer::new(items.iter().map(Strict))),
            Value::Object(fields) => visitor
                .visit_map(MapDeserializer::new(fields.iter().map(|(name, value)| (name.as_str(), Strict(value))))),
            other => other.deserialize_any(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.0 {
            Value::Array(_) => Err(Error::invalid_type(Unexpected::Seq, &"struct")),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.0.deserialize_enum(name, variants, visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct Inner {
        number: i64,
        text: Option<String>,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct Outer {
        inner: Option<Inner>,
        all: Vec<Inner>,
        any: Value,
    }

    #[test]
    fn list_is_no_object() {
        let value =
            json!({"inner": {"number": 7, "text": null}, "all": [{"text": "a"}], "any": [1, {"b": null}], "new": []});
        assert_eq!(read::<Outer>(&value).unwrap(), serde_json::from_value(value).unwrap());
        for wrong in
            [json!([]), json!({"inner": []}), json!({"inner": [7, "a"]}), json!({"all": [[]]}), json!({"all": {}})]
        {
            assert!(read::<Outer>(&wrong).is_err(), "{wrong}");
        }
    }
}
