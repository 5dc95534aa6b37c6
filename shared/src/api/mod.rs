//! The custom resources `KnativeServing` and `KnativeEventing` (`operator.knative.dev/v1beta1`),
//! and the part of `ClusterProfile` (`multicluster.x-k8s.io`) that the operator reads.

pub mod cluster_profile;
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

pub use cluster_profile::{AccessProvider, ClusterProfile, ClusterProfileSpec, ClusterProfileStatus, Properties};
pub use common::{
    ClusterProfileReference, CommonSpec, Condition, HighAvailability, KnativeStatus, ManifestSource,
    NamespaceConfiguration, Registry,
};
pub use component::{Component, Knative};
pub use eventing::{KnativeEventing, KnativeEventingSpec, SourceConfigs};
pub use fleet::{KnativeFleet, KnativeFleetApproval, KnativeFleetSpec, KnativeFleetStatus};
pub use ingress::{IngressConfigs, IstioGateway, IstioIngress, IstioServer, IstioTlsMode, KourierIngress};
pub use kind::Kind;
pub use patch::{Patch, PatchTarget, PatchType, ResourcePatch};
pub use serving::{CustomCerts, KnativeServing, KnativeServingSpec};
pub use workload::{
    ContainerEnv, ContainerProbe, ContainerResources, PodDisruptionBudgetOverride, ServiceOverride, WorkloadOverride,
};
