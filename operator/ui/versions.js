// Which versions are installed on how many clusters, and which clusters are behind their target.

import { h, number, ornament, plural, redraw, spoken } from "./dom.js";
import { matrix } from "./matrix.js";
import { address } from "./route.js";
import { rowHead, table } from "./table.js";
import { state } from "./store.js";
import { isAt, targetOf } from "./target.js";
import { KINDS, NONE, count, label, newestFirst, versionOf } from "./version.js";

/** @typedef {import("./store.js").Cluster} Cluster */

/** The fleets that want `version`. @param {string} kind @param {string} version */
function targets(kind, version) {
  const wants = (/** @type {string | undefined} */ target) => target !== undefined && target !== "latest" && isAt(version, target);
  return state.fleets.filter((fleet) => wants(fleet.versions?.[kind])).map((fleet) => `${fleet.namespace}/${fleet.name}`);
}

/** A row of the bars. @param {string} kind @param {string} version @param {number} amount @param {number} most */
function barRow(kind, version, amount, most) {
  const bar = h("span", { class: "bar", "aria-hidden": "true" });
  bar.style.width = `${(100 * amount) / most}%`;
  const fleets = targets(kind, version);
  const tag = fleets.length > 0 && h("span", { class: "tag", title: `Target of ${fleets.join(", ")}` }, "target");
  const link = h("a", { href: address(["clusters"], { version: `${kind}:${version}` }), "data-key": `${kind} ${version}` },
    number(amount), spoken(` clusters with ${kind} ${label(version)}`));
  return h("tr", {}, rowHead(h("code", {}, label(version)), tag), h("td", { class: "amount" }, link), h("td", { class: "track" }, bar));
}

/** Bars of a component. @param {Cluster[]} clusters @param {string} kind */
function bars(clusters, kind) {
  const counts = count(clusters.map((cluster) => versionOf(cluster, kind)).filter(Boolean));
  if (counts.size === 0) return null;
  const most = Math.max(...counts.values());
  const rows = [...counts].sort((a, b) => newestFirst(a[0], b[0])).map(([version, amount]) => barRow(kind, version, amount, most));
  const about = { name: "versions", label: `Versions of ${kind}`, heads: ["Version", "Clusters", "Share"], hasHiddenHead: true };
  return h("section", { class: "panel", "aria-label": kind }, h("h2", {}, kind), table(about, rows));
}

/** Clusters on the way, or whose stage has not begun. @param {Cluster[]} clusters */
function behind(clusters) {
  const all = clusters.flatMap((cluster) => cluster.components.map((component) => ({ cluster, component, target: targetOf(cluster, component) })));
  const found = all.filter(({ target }) => target);
  if (found.length === 0) {
    return h("p", { class: "panel" }, h("span", { class: "badge Ready" }, ornament("✓", "symbol"), "Every cluster has its target version"));
  }
  const ways = count(found.map(({ component, target }) => `${component.kind} ${component.version ?? NONE} ${target}`));
  const rows = [...ways].sort((a, b) => b[1] - a[1]).map(([way, amount]) => {
    const [kind, from, to] = way.split(" ");
    const versions = [h("code", {}, label(from)), ornament(" → "), spoken(" to "), h("code", {}, to)];
    return h("tr", {}, rowHead(kind.replace("Knative", "")), h("td", {}, ...versions), h("td", { class: "amount" }, number(amount)));
  });
  const clustersBehind = new Set(found.map(({ cluster }) => cluster)).size;
  const link = h("a", { href: address(["clusters"], { version: "behind" }), "data-key": "behind" }, plural(clustersBehind, "cluster"));
  return h("section", { class: "panel", "aria-labelledby": "behind" }, h("h2", { id: "behind" }, "Not at target: ", link),
    table({ name: "ways-table", label: "Versions on the way", heads: ["Component", "From → to", "Number"] }, rows));
}

/** @returns {import("./main.js").View} */
export function versionsView() {
  const element = h("div", {});
  const update = () => {
    const clusters = Object.values(state.clusters);
    const versions = clusters.map((cluster) => cluster.components.map((one) => [one.kind, one.version, one.targetVersion]));
    redraw(element, JSON.stringify([versions, state.fleets.map((fleet) => fleet.versions)]), () => {
      if (versions.every((one) => one.length === 0)) return [h("p", { class: "none" }, "Nothing is installed yet.")];
      return [behind(clusters), h("div", { class: "pair" }, KINDS.map((kind) => bars(clusters, kind))), matrix(clusters)];
    });
  };
  return { title: "Versions", element, update };
}
