// A row of the table of clusters.

import { h, since } from "./dom.js";
import { componentOf, repairedAt } from "./filter.js";
import { badge, shortName, worst } from "./states.js";
import { clusterAddress, withQuery } from "./route.js";

/** @typedef {import("./store.js").Cluster} Cluster */
/** @typedef {import("./store.js").Component} Component */

/** Columns: what is sorted by, and the heading. */
export const COLUMNS = [
  ["name", "Cluster"], ["state", "State"], ["serving", "Serving"], ["eventing", "Eventing"],
  ["fleet", "Fleet"], ["drift", "Last drift"], ["since", "Since"],
];

/** @param {Component | undefined} component */
function version(component) {
  if (!component) return h("span", { class: "dim" }, "–");
  const target = component.targetVersion;
  const way = target && h("span", { class: "behind" }, " → ", h("code", {}, target));
  return h("span", {}, h("code", {}, component.version ?? "none"), way);
}

/** @param {Cluster} cluster */
function reason(cluster) {
  const problem = worst(cluster)?.problem;
  const text = problem?.reason || (cluster.state === "Ready" ? "" : problem?.condition);
  return text && h("span", { class: "reason", title: problem?.message }, text);
}

/** @param {Cluster} cluster */
export function cells(cluster) {
  const versions = new Set(cluster.components.map((one) => one.version ?? "none"));
  /** @type {(name: string, ...children: import("./dom.js").Child[]) => HTMLElement} */
  const cell = (name, ...children) => h("td", { class: `col-${name}` }, ...children);
  return [
    h("th", { scope: "row", class: "col-name" },
      h("a", { href: clusterAddress(cluster.id), title: cluster.id }, shortName(cluster.id)),
      h("span", { class: "sub" }, [...versions].join(", "))),
    cell("state", badge(cluster.state), reason(cluster)),
    cell("serving", version(componentOf(cluster, "KnativeServing"))),
    cell("eventing", version(componentOf(cluster, "KnativeEventing"))),
    cell("fleet", cluster.fleet && h("a", { href: withQuery({ fleet: cluster.fleet }) }, cluster.fleet)),
    cell("drift", since(repairedAt(cluster), " ago")),
    cell("since", since(worst(cluster)?.since)),
  ];
}
