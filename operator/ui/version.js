// The installed versions of clusters.

import { componentOf } from "./filter.js";

export const KINDS = ["KnativeServing", "KnativeEventing"];

/** In place of the version of a resource that is not installed yet. */
export const NONE = "none";

const collator = new Intl.Collator("en", { numeric: true });

/** Newest first; not installed last. @param {string} a @param {string} b */
export function newestFirst(a, b) {
  return Number(a === NONE) - Number(b === NONE) || collator.compare(b, a);
}

/**
 * The version, or "" without a resource.
 * @param {import("./store.js").Cluster} cluster
 * @param {string} kind
 */
export function versionOf(cluster, kind) {
  const component = componentOf(cluster, kind);
  return component ? component.version ?? NONE : "";
}

/** @param {string} version */
export function label(version) {
  return version === NONE ? "not installed" : version;
}

/** How often each value is there. @param {string[]} values @returns {Map<string, number>} */
export function count(values) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  return counts;
}
