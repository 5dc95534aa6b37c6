// States of clusters and components, and their names.

import { h, ornament } from "./dom.js";
import { state } from "./store.js";

/** @typedef {import("./store.js").Cluster} Cluster */
/** @typedef {import("./store.js").Component} Component */

/** Symbols of states: shapes differ without colors, too. */
export const SYMBOLS = /** @type {Record<string, string>} */ ({
  Failed: "✕",
  Unreachable: "?",
  Degraded: "!",
  Terminating: "−",
  Progressing: "◔",
  Pending: "○",
  Ready: "✓",
});

/** States, from bad to good. */
export const STATES = ["Failed", "Unreachable", "Degraded", "Terminating", "Progressing", "Pending", "Ready"];

/** States in which somebody should look. */
export const BAD = ["Failed", "Unreachable", "Degraded"];

const collator = new Intl.Collator("en", { numeric: true });

/**
 * The order of clusters, worst first.
 * @param {Cluster} a
 * @param {Cluster} b
 */
export function worstFirst(a, b) {
  return STATES.indexOf(a.state) - STATES.indexOf(b.state) || collator.compare(a.id, b.id);
}

/**
 * @param {string} name
 * @param {string} [text]
 */
export function badge(name, text = name) {
  return h("span", { class: `badge ${name}` }, ornament(SYMBOLS[name] ?? "‖", "symbol"), text);
}

/** The component that its cluster has the state of. @param {Cluster} cluster @returns {Component | undefined} */
export function worst(cluster) {
  return cluster.components.find((component) => component.state === cluster.state);
}

/** @param {Component} component */
export function versionText(component) {
  const target = component.targetVersion ? ` → ${component.targetVersion}` : "";
  return `${component.version ?? "none"}${target}`;
}

/** What a cell says. @param {Cluster} cluster */
export function describe(cluster) {
  const parts = cluster.components.map((component) => {
    const target = component.targetVersion ? ` to ${component.targetVersion}` : "";
    const why = component.problem ? `, ${component.problem.reason || component.problem.condition}` : "";
    return `${component.kind} ${component.version ?? "not installed"}${target}, ${component.state}${why}`;
  });
  return `${cluster.id}: ${cluster.state}. ${parts.join("; ") || "no resource yet"}`;
}

let common = { sequence: -1, prefix: "" };

/**
 * The name of a cluster, without the namespace if all ClusterProfiles have the same one.
 * @param {string} id
 */
export function shortName(id) {
  if (common.sequence !== state.sequence) {
    const namespaces = new Set(Object.keys(state.clusters).filter((one) => one.includes("/")).map((one) => one.split("/", 1)[0]));
    common = { sequence: state.sequence, prefix: namespaces.size === 1 ? `${[...namespaces][0]}/` : "" };
  }
  return common.prefix && id.startsWith(common.prefix) ? id.slice(common.prefix.length) : id;
}
