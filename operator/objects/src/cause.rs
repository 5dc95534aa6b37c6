//! Why a workload is not available, as its Pods tell: a cause, and the sentence about workloads
//! that share it. Pure.

use std::fmt::Write;

use super::foreign_text::name;

/// Label of the last step of a node that is no trouble.
pub const LAST_STEP: &str = "its last step";

/// Kinds of causes, the most telling first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CauseKind {
    /// The name of an image is invalid.
    ImageName,
    /// A container must not run as root, and its image does.
    RunsAsRoot,
    /// The command of a container can't be executed.
    Command,
    /// A container lacks what its spec refers to: a Secret, a ConfigMap, a key.
    Configuration,
    /// An image can't be pulled.
    Image,
    /// A container can't be created or started.
    Start,
    /// A container used more memory than it may.
    Memory,
    /// A container ends, again and again.
    Crash,
    /// A container of a Job has failed.
    Failure,
    /// The workload's Pods are refused: a quota, Pod Security, an admission webhook.
    Refused,
    /// No node fits a Pod.
    Scheduling,
    /// A node evicted or rejected a Pod.
    Evicted,
    /// A node does not respond.
    Node,
    /// The containers of a Pod are not created: its volumes or its network are not ready.
    Creation,
    /// A container runs, and is not Ready.
    Readiness,
    /// Former Pods have not ended yet.
    Draining,
}

/// What a Pod does not tell itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The end of the log of the container.
    pub log: bool,
    /// The log of the container before its last restart.
    pub previous: bool,
    /// The events about the Pod.
    pub events: bool,
}

/// More about a cause: of a single container or Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extra {
    /// What the text is.
    pub label: String,
    /// The text, as it is shown.
    pub text: String,
}

impl Extra {
    /// The last words of a container.
    pub fn last_words(words: &str) -> Option<Self> {
        (!words.is_empty()).then(|| Self { label: "last words".to_owned(), text: format!("\"{words}\"") })
    }
}

/// Why a workload is not available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Which kind.
    pub kind: CauseKind,
    /// The image or container.
    pub subject: String,
    /// Further facts, which workloads with the same cause share.
    pub detail: String,
    /// What only this Pod tells.
    pub extra: Option<Extra>,
    /// What else to ask.
    pub needs: Needs,
}

impl Cause {
    /// A cause that needs no further question.
    pub fn new(kind: CauseKind, subject: &str, detail: impl Into<String>) -> Self {
        Self { kind, subject: name(subject), detail: detail.into(), extra: None, needs: Needs::default() }
    }

    /// Whether it is a step on the way, not trouble: images are pulled, or Pods drain.
    pub fn is_progress(&self) -> bool {
        match self.kind {
            CauseKind::Draining => true,
            CauseKind::Creation => self.extra.as_ref().is_none_or(|extra| extra.label == LAST_STEP),
            _ => false,
        }
    }

    /// Whether `other` is the same cause, of other images or containers.
    pub fn is_same(&self, other: &Self) -> bool {
        self.kind == other.kind && self.detail == other.detail
    }

    /// The sentence about all of `subjects`, of which the first is that of this cause.
    pub fn sentence(&self, subjects: &[String]) -> String {
        let of = name_first(subjects);
        let verb = |one: &'static str, many: &'static str| if subjects.len() > 1 { many } else { one };
        let container = verb("container", "containers");
        let detail = if self.detail.is_empty() { String::new() } else { format!(": {}", self.detail) };
        let mut text = match self.kind {
            CauseKind::ImageName => format!("invalid image {} {of}{detail}", verb("name", "names")),
            CauseKind::Image => format!("cannot pull {} {of}{detail}", verb("image", "images")),
            CauseKind::RunsAsRoot => format!("{container} {of} must not run as root{detail}"),
            CauseKind::Command => format!("cannot execute the command of {container} {of}{detail}"),
            CauseKind::Configuration => format!("cannot configure {container} {of}{detail}"),
            CauseKind::Start => format!("cannot start {container} {of}{detail}"),
            CauseKind::Memory if self.detail.is_empty() => {
                format!("{container} {of} {} killed, because the node lacks memory (OOMKilled)", verb("is", "are"))
            }
            CauseKind::Memory => {
                let needs = verb("needs more memory than its limit", "need more memory than their limit");
                format!("{container} {of} {needs} of {} (OOMKilled)", self.detail)
            }
            CauseKind::Crash => format!("{container} {of} {} with {}", verb("crashes", "crash"), self.detail),
            CauseKind::Failure => format!("{container} {of} failed with {}", self.detail),
            CauseKind::Refused => format!("Pods are refused{detail}"),
            CauseKind::Scheduling => format!("no node fits{detail}"),
            CauseKind::Evicted => format!("the node rejected Pods{detail}"),
            CauseKind::Node => format!("the node {} does not respond", self.detail),
            CauseKind::Creation => format!("the node has not created {container} {of} yet{detail}"),
            CauseKind::Readiness => format!("{container} {of} {} not ready{detail}", verb("is", "are")),
            CauseKind::Draining => format!("former Pods drain until {} at the latest", self.detail),
        };
        if let Some(Extra { label, text: extra }) = &self.extra {
            let whose = if subjects.len() > 1 { format!(" of \"{}\"", self.subject) } else { String::new() };
            // Writing to a String can't fail.
            let _ = write!(text, "; {label}{whose}: {extra}");
        }
        text
    }
}

/// The first of `subjects`, with the second or the number of others.
fn name_first(subjects: &[String]) -> String {
    match subjects {
        [] => String::new(),
        [one] => format!("\"{one}\""),
        [one, other] => format!("\"{one}\" and \"{other}\""),
        [one, others @ ..] => format!("\"{one}\" and {} more", others.len()),
    }
}

/// A cause that several of the given ones share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The cause, of the first.
    pub cause: Cause,
    /// Positions of those that share it, in the given order.
    pub members: Vec<usize>,
    /// Their images or containers, each once.
    pub subjects: Vec<String>,
}

impl Group {
    /// The sentence about it.
    pub fn sentence(&self) -> String {
        self.cause.sentence(&self.subjects)
    }
}

/// The groups of `causes`, the most telling first.
pub fn groups<'c>(causes: impl Iterator<Item = &'c Cause>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (position, cause) in causes.enumerate() {
        let Some(group) = groups.iter_mut().find(|group| group.cause.is_same(cause)) else {
            let subjects = vec![cause.subject.clone()];
            groups.push(Group { cause: cause.clone(), members: vec![position], subjects });
            continue;
        };
        group.members.push(position);
        if !group.subjects.contains(&cause.subject) {
            group.subjects.push(cause.subject.clone());
        }
        if group.cause.extra.is_none() && cause.extra.is_some() {
            // The subject with the extra comes first.
            group.subjects.retain(|subject| *subject != cause.subject);
            group.subjects.insert(0, cause.subject.clone());
            group.cause = cause.clone();
        }
    }
    groups.sort_by_key(|group| group.cause.kind);
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentences(causes: &[Cause]) -> Vec<String> {
        groups(causes.iter()).iter().map(Group::sentence).collect()
    }

    #[test]
    fn pulling_and_draining_are_no_trouble() {
        let creation = |label: Option<&str>| Cause {
            extra: label.map(|label| Extra { label: label.to_owned(), text: "x".to_owned() }),
            ..Cause::new(CauseKind::Creation, "a", "")
        };
        assert!(creation(None).is_progress() && creation(Some(LAST_STEP)).is_progress());
        assert!(Cause::new(CauseKind::Draining, "", "later").is_progress());
        assert!(!creation(Some("FailedMount")).is_progress());
        assert!(!Cause::new(CauseKind::Image, "a", "not found").is_progress());
    }

    #[test]
    fn shared_cause_is_one_sentence() {
        let image = |name: &str, why: &str| Cause::new(CauseKind::Image, name, why);
        let crash = |name: &str, words: &str| Cause {
            extra: Extra::last_words(words),
            ..Cause::new(CauseKind::Crash, name, "exit code 1")
        };
        for (causes, expected) in [
            (vec![image("r/a:1", "not found")], vec![r#"cannot pull image "r/a:1": not found"#]),
            (
                vec![image("r/a:1", "not found"), image("r/a:1", "not found")],
                vec![r#"cannot pull image "r/a:1": not found"#],
            ),
            (
                ["a", "b", "c"].map(|name| image(name, "no such host")).to_vec(),
                vec![r#"cannot pull images "a" and 2 more: no such host"#],
            ),
            (
                vec![image("a", "not found"), image("b", "no such host")],
                vec![r#"cannot pull image "a": not found"#, r#"cannot pull image "b": no such host"#],
            ),
            (
                vec![crash("activator", ""), crash("controller", "no way")],
                vec![
                    r#"containers "controller" and "activator" crash with exit code 1; last words of "controller": "no way""#,
                ],
            ),
            (
                vec![crash("activator", "no way"), image("a", "not found")],
                vec![
                    r#"cannot pull image "a": not found"#,
                    r#"container "activator" crashes with exit code 1; last words: "no way""#,
                ],
            ),
        ] {
            assert_eq!(sentences(&causes), expected);
        }
    }
}
