// The version that a component should have.

import { state } from "./store.js";

/** Whether `version` is what `target` means, such as "1.23". @param {string | undefined} version @param {string} target */
export function isAt(version, target) {
  return target === "latest" || version === target || Boolean(version?.startsWith(`${target}.`));
}

/**
 * The version that a component is on the way to, or that its fleet has and its stage still waits
 * for; undefined if it has its version.
 * @param {import("./store.js").Cluster} cluster
 * @param {import("./store.js").Component} component
 */
export function targetOf(cluster, component) {
  if (component.targetVersion) return component.targetVersion;
  const fleet = state.fleets.find((one) => `${one.namespace}/${one.name}` === cluster.fleet);
  const target = fleet?.versions?.[component.kind];
  return target && !isAt(component.version, target) ? target : undefined;
}
