//! What is wrong with a patch: each with the fix.

use serde_json::Value;

/// Why a patch is invalid: the field of the patch, and the reason with the fix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatchError {
    /// Path of the field in the patch: `target`, `patch.type` or `patch.content`.
    pub field: &'static str,
    /// The reason, and the fix.
    pub reason: String,
}

impl PatchError {
    /// An error about the target.
    pub fn target(reason: impl Into<String>) -> Self {
        Self { field: "target", reason: reason.into() }
    }

    /// An error about the content.
    pub fn content(reason: impl Into<String>) -> Self {
        Self { field: "patch.content", reason: reason.into() }
    }
}

impl From<ContentError> for PatchError {
    fn from(why: ContentError) -> Self {
        Self::content(why.to_string())
    }
}

/// What is wrong with the content of a patch.
#[derive(Debug, thiserror::Error)]
pub enum ContentError {
    #[error("unknown directive $patch: {0}; set it to delete or replace, or remove it")]
    UnknownDirective(Value),
    #[error("$patch: merge in {0} is the default; remove it")]
    DefaultDirective(String),
    #[error("$patch has no effect in {0}, which has no merge key: a patch replaces the list; remove the directive")]
    DirectiveWithoutEffect(String),
    #[error("an element of {list} has no {key}, the merge key of the list; set it")]
    NoMergeKey { list: String, key: String },
    #[error("{0} has no merge key; use merge or json")]
    ListWithoutKey(String),
    #[error("the elements of {0} have different types, or are lists; use merge or json")]
    MixedElements(String),
    #[error("$retainKeys is not a list of names")]
    RetainKeys,
    #[error("$retainKeys does not list {0}, which the patch sets; add it")]
    NotRetained(String),
    #[error("{0} is not a list")]
    NotAList(String),
    #[error("{0} is not a list, so its elements have no order; remove $setElementOrder/{0}")]
    NothingToOrder(String),
    #[error("the elements of {0} are not in the order of $setElementOrder/{0}; list all of them there")]
    OtherOrder(String),
    #[error("the patch has more than {0} operations; write fewer, or a merge patch")]
    TooManyOperations(usize),
    #[error("the patch nests values more than {0} levels deep; set the fields themselves")]
    TooDeep(usize),
    #[error("the patch copies and moves more than 3 MiB; set the fields themselves")]
    TooMuchCopied,
    #[error("the patch makes the object larger than an API server accepts; set fewer fields")]
    TooLarge,
    #[error("{0} has more than {1} elements, which are too many to merge; use merge or json")]
    TooManyElements(String, usize),
    #[error("cannot apply the JSON patch: {0}; correct the operation")]
    Operation(json_patch::PatchError),
    #[error("{path} is {type_}; quote the value")]
    NotAString { path: String, type_: &'static str },
}

impl ContentError {
    /// An element of `list` lacks `key`.
    pub fn no_merge_key(list: &str, key: &str) -> Self {
        Self::NoMergeKey { list: list.to_owned(), key: key.to_owned() }
    }
}
