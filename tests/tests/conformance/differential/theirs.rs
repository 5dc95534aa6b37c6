//! Rendering by the Go operator's own reconcilers: `tests/tools/go-operator/render`.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

use knative_operator_tests::tools;
use serde::Deserialize;
use serde_json::Value;

use super::compare::Object;

/// Number of objects to remember: twice as many as the program refers to.
const MAXIMUM: usize = 8192;

/// The objects of a resource, or why it isn't rendered.
pub type Rendered = Result<Vec<Arc<Object>>, String>;

/// A running program.
pub struct Theirs {
    program: Child,
    answers: Lines<BufReader<ChildStdout>>,
    known: HashMap<String, Arc<Object>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Answer {
    objects: Vec<String>,
    new: HashMap<String, Value>,
    error: String,
    panic: bool,
}

/// Where resources are sent.
pub struct Sender(ChildStdin);

impl Sender {
    /// Sends `resource`. The next answer is for the first resource without an answer.
    pub fn send(&mut self, resource: &Value) {
        // The program ends early after a panic.
        let _ = writeln!(self.0, "{resource}");
    }
}

impl Theirs {
    /// Starts the program with the releases in `folder`.
    pub fn start(folder: &Path) -> (Sender, Self) {
        let mut program = Command::new(tools::go_operator("render").unwrap())
            .arg("--kodata")
            .arg(folder)
            .env_remove("KUBERNETES_MIN_VERSION")
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let sender = Sender(program.stdin.take().unwrap());
        let answers = BufReader::new(program.stdout.take().unwrap()).lines();
        (sender, Self { program, answers, known: HashMap::new() })
    }

    /// The next answer.
    pub fn answer(&mut self) -> Rendered {
        let Some(line) = self.answers.next() else {
            panic!("the Go operator's renderer ended: {}", self.program.wait().unwrap());
        };
        let answer: Answer = serde_json::from_str(&line.unwrap()).unwrap();
        if answer.panic {
            return Err(format!("panic: {}", answer.error));
        }
        if !answer.error.is_empty() {
            return Err(answer.error);
        }
        let mut new: HashMap<_, _> =
            answer.new.into_iter().map(|(digest, object)| (digest, Arc::new(Object::new(&object)))).collect();
        let objects = answer
            .objects
            .iter()
            .map(|digest| Arc::clone(new.get(digest).unwrap_or_else(|| &self.known[digest])))
            .collect();
        if self.known.len() < MAXIMUM {
            self.known.extend(new.drain());
        }
        Ok(objects)
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        self.program.kill().unwrap_or_default();
        self.program.wait().map(drop).unwrap_or_default();
    }
}
