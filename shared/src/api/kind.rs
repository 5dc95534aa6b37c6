//! The kinds of custom resources that install Knative.

use super::Component;
use crate::label::{FLEET_VERSION, VERSION};

/// Kind of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// KnativeServing or KnativeEventing.
    Component(Component),
    /// KnativeFleet.
    Fleet,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Component(Component::Serving), Self::Component(Component::Eventing), Self::Fleet];

    /// Its name, as in `kind`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Component(component) => component.kind(),
            Self::Fleet => "KnativeFleet",
        }
    }

    /// Its plural, as in URLs.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Component(component) => component.plural(),
            Self::Fleet => "knativefleets",
        }
    }

    /// Its API version, without the group.
    pub fn version(self) -> &'static str {
        match self {
            Self::Component(_) => VERSION,
            Self::Fleet => FLEET_VERSION,
        }
    }
}

impl From<Component> for Kind {
    fn from(component: Component) -> Self {
        Self::Component(component)
    }
}
