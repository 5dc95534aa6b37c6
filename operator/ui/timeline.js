// What happened, newest first.

import { h, number, since } from "./dom.js";
import { shortName } from "./states.js";
import { address, clusterAddress } from "./route.js";

/** @typedef {import("./store.js").Activity} Activity */

/** Topics: their looks are those of states. @type {Record<string, {text: string, symbol: string, look: string}>} */
export const TOPICS = {
  failure: { text: "Failures", symbol: "✕", look: "Failed" },
  approval: { text: "Approvals", symbol: "✓", look: "Degraded" },
  rollout: { text: "Rollouts", symbol: "»", look: "Progressing" },
  upgrade: { text: "Upgrades", symbol: "↑", look: "Progressing" },
  install: { text: "Installs", symbol: "+", look: "Ready" },
  drift: { text: "Drift", symbol: "↺", look: "Terminating" },
  other: { text: "Other", symbol: "•", look: "Pending" },
};

/** @param {Activity} entry */
function subject({ cluster, kind, namespace, name, at, reason }) {
  if (!cluster) return h("a", { href: "#/", class: "subject" }, `${namespace}/${name}`);
  return h("span", { class: "subject" },
    h("a", { href: clusterAddress(cluster), "data-key": `${at} ${reason} ${cluster}` }, shortName(cluster)), " ",
    h("a", { class: "kind", href: address(["resource", kind, namespace, name]) }, kind.replace("Knative", "")));
}

/** @param {Activity} entry @param {boolean} hasSubject */
function item(entry, hasSubject) {
  const { symbol, look } = TOPICS[entry.topic] ?? TOPICS.other;
  const times = entry.count > 1 && h("span", { class: "dim" }, ` ${number(entry.count)} times`);
  return h("li", { class: "entry" },
    h("span", { class: "entry-time" }, since(entry.at, " ago")),
    h("span", { class: `entry-symbol ${look}`, "aria-hidden": "true" }, symbol),
    h("div", {},
      h("p", {}, hasSubject && subject(entry), h("strong", { class: look === "Failed" && look }, entry.reason), times),
      h("p", { class: "message" }, entry.message)));
}

/**
 * @param {Activity[]} entries
 * @param {{hasSubject: boolean, empty: string}} how whether each says where, and the text without any
 */
export function timeline(entries, { hasSubject, empty }) {
  if (entries.length === 0) return h("p", { class: "none" }, empty);
  return h("ol", { class: "timeline" }, entries.map((entry) => item(entry, hasSubject)));
}
