//! How strategic merge patches merge the fields of Kubernetes' kinds: merge keys and strategies,
//! generated from Kubernetes' OpenAPI document (`make generate`).

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

/// The fields of a type that have a strategy, or whose type has such fields: `Type strategy key`,
/// where each part can be missing (`-`).
type Fields = BTreeMap<String, String>;

#[derive(Deserialize)]
struct Table {
    /// Type of a kind, by `apiVersion/kind`.
    kinds: BTreeMap<String, String>,
    types: BTreeMap<String, Fields>,
}

static TABLE: LazyLock<Table> =
    LazyLock::new(|| serde_json::from_str(include_str!("schema.json")).expect("the generated table is valid"));

/// A type of an object or of a part of an object.
#[derive(Clone, Copy, Debug)]
pub struct Schema(Option<&'static Fields>);

/// How a field merges.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The type of the field, or of the elements of a list.
    pub schema: Schema,
    /// The strategy.
    pub strategy: Strategy,
    /// The merge key of a list of maps.
    pub merge_key: Option<&'static str>,
}

/// The strategy of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// The default: maps merge, the patch replaces lists.
    Default,
    /// Lists merge.
    Merge,
    /// The patch replaces maps and lists.
    Replace,
}

impl Schema {
    /// The schema of `kind` in `api_version`; `None` if it supports no strategic merge patches.
    pub fn of(api_version: &str, kind: &str) -> Option<Self> {
        let name = TABLE.kinds.get(&format!("{api_version}/{kind}"))?;
        Some(Self(TABLE.types.get(name)))
    }

    /// How the field `name` merges.
    pub fn field(self, name: &str) -> Field {
        let entry = self.0.and_then(|fields| fields.get(name));
        let mut parts = entry.into_iter().flat_map(|entry| entry.split(' '));
        let mut part = || parts.next().filter(|part| *part != "-");
        let (schema, strategy, merge_key) = (part(), part(), part());
        Field {
            schema: Self(schema.and_then(|name| TABLE.types.get(name))),
            strategy: match strategy {
                Some("merge") => Strategy::Merge,
                Some("replace") => Strategy::Replace,
                _ => Strategy::Default,
            },
            merge_key,
        }
    }
}
