//! The custom resources `KnativeServing` and `KnativeEventing` (`operator.knative.dev/v1beta1`),
//! and `ClusterProfile` (`multicluster.x-k8s.io`).

pub mod common;
mod component;
mod eventing;
pub mod fleet;
pub mod fleet_gate;
pub mod fleet_status;
mod ingress;
mod kind;
mod patch;
mod serving;
mod workload;

pub use common::{
    CommonSpec, Condition, HighAvailability, KnativeStatus, ManifestSource, NamespaceConfiguration, Registry,
};
pub use component::{Component, Knative};
pub use eventing::{KnativeEventing, KnativeEventingSpec, SourceConfigs};
pub use fleet::{KnativeFleet, KnativeFleetApproval, KnativeFleetSpec, KnativeFleetStatus};
pub use ingress::{IngressConfigs, IstioGateway, IstioIngress, IstioServer, IstioTlsMode, KourierIngress};
pub use kind::Kind;
pub use knative_operator_base::cluster_profile;
pub use knative_operator_base::cluster_profile::{
    AccessProvider, ClusterProfile, ClusterProfileReference, ClusterProfileSpec, ClusterProfileStatus, Properties,
};
pub use patch::{Patch, PatchTarget, PatchType, ResourcePatch};
pub use serving::{CustomCerts, KnativeServing, KnativeServingSpec};
pub use workload::{
    ContainerEnv, ContainerProbe, ContainerResources, PodDisruptionBudgetOverride, ServiceOverride, WorkloadOverride,
};
