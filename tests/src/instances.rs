//! Random instances of a CustomResourceDefinition, generated from its OpenAPI schema: the API
//! server admits all of them.

use serde_json::{Map, Value, json};

/// Generates instances. Equal seeds generate equal instances.
pub struct Generator {
    state: u64,
    /// Fields that the current instance may still get.
    budget: usize,
}

/// Maximum number of fields: a schema with every field of every Kubernetes type is large.
const FIELDS: usize = 120;

const WORDS: [&str; 16] = [
    "",
    "a",
    "activator",
    "controller",
    "webhook",
    "activator-pdb",
    "config-features",
    "features",
    "br-defaults",
    "latest",
    "1.1",
    "1.1.0",
    "${NAME}",
    "clusterDefault: {}",
    "ünïcödé \"quoted\"",
    "Secret",
];
const QUANTITIES: [&str; 6] = ["0", "100m", "1.5Gi", "-1", "1e3", "+2Ki"];
const INT32: [i64; 7] = [i32::MIN as i64, -1, 0, 1, 2, 443, i32::MAX as i64];
const INT64: [i64; 6] = [i64::MIN, -1, 0, 1, 3_000_000_000, i64::MAX];

impl Generator {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(1), budget: 0 }
    }

    /// splitmix64.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// True in one of `n` cases.
    fn one_in(&mut self, n: u64) -> bool {
        self.next().is_multiple_of(n)
    }

    fn pick<T: Clone>(&mut self, all: &[T]) -> T {
        let place = self.next() % u64::try_from(all.len()).unwrap_or(1);
        all[usize::try_from(place).unwrap_or_default()].clone()
    }

    /// A random instance of `schema`.
    pub fn instance(&mut self, schema: &Value) -> Value {
        self.budget = FIELDS;
        self.value(schema)
    }

    fn value(&mut self, schema: &Value) -> Value {
        if schema["nullable"] == true && self.one_in(4) {
            return Value::Null;
        }
        if let Some(words) = schema["enum"].as_array() {
            return self.pick(words);
        }
        if schema["x-kubernetes-int-or-string"] == true {
            return if self.one_in(2) { json!(self.pick(&INT64)) } else { self.string(schema) };
        }
        match schema["type"].as_str() {
            Some("object") => self.object(schema),
            Some("array") => self.array(schema),
            Some("string") => self.string(schema),
            Some("boolean") => json!(self.one_in(2)),
            // Not every API server enforces the format.
            Some("integer") if schema["format"] == "int32" && !self.one_in(16) => json!(self.pick(&INT32)),
            Some("integer") => json!(self.pick(&INT64)),
            Some("number") => json!(0.5),
            _ => self.anything(),
        }
    }

    fn object(&mut self, schema: &Value) -> Value {
        let mut fields = Map::new();
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        for (name, child) in schema["properties"].as_object().into_iter().flatten() {
            let optional = self.budget > 0 && self.one_in(if self.budget > FIELDS / 2 { 2 } else { 5 });
            if required.contains(&name.as_str()) || optional {
                self.budget = self.budget.saturating_sub(1);
                fields.insert(name.clone(), self.value(child));
            }
        }
        if schema["additionalProperties"].is_object() {
            for _ in 0..self.next() % 3 {
                let name = self.pick(&WORDS).to_owned();
                fields.insert(name, self.value(&schema["additionalProperties"]));
            }
        }
        if schema["x-kubernetes-preserve-unknown-fields"] == true {
            fields.insert("unknownToAll".to_owned(), self.anything());
        }
        fields.into()
    }

    fn array(&mut self, schema: &Value) -> Value {
        let mut items = Vec::new();
        for number in 0..self.next() % 3 {
            let mut item = self.value(&schema["items"]);
            // Items of a map have distinct keys, items of a set are distinct.
            for key in schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                item[key] = json!(format!("{number}"));
            }
            if schema["x-kubernetes-list-type"] != "set" || !items.contains(&item) {
                items.push(item);
            }
        }
        items.into()
    }

    fn string(&mut self, schema: &Value) -> Value {
        if schema["pattern"].is_string() {
            return json!(self.pick(&QUANTITIES));
        }
        let least = schema["minLength"].as_u64().unwrap_or_default();
        let word = self.pick(&WORDS);
        if (word.chars().count() as u64) < least {
            json!("a".repeat(usize::try_from(least).unwrap_or(1)))
        } else {
            json!(word)
        }
    }

    fn anything(&mut self) -> Value {
        self.pick(&[Value::Null, json!(1), json!("x"), json!([null]), json!({"a": null})])
    }
}
