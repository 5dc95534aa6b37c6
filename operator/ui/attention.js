// Clusters that need attention: those with the same problem together, worst first.

import { advice, causes, diagnosis } from "./advice.js";
import { copyButton } from "./copy.js";
import { h, number, plural, since } from "./dom.js";
import { BAD, STATES, badge, shortName, worst, worstFirst } from "./states.js";
import { clusterAddress, withQuery } from "./route.js";
import { state } from "./store.js";

/** @typedef {import("./store.js").Cluster} Cluster */
/** @typedef {{key: string, state: string, clusters: Cluster[]}} Group */

/** Clusters of a group that are named without the drawer. */
const NAMED = 3;

/** A short name of `text`, which is the same each time. @param {string} text */
function hash(text) {
  let value = 0;
  for (const character of text) value = (Math.imul(value, 31) + character.charCodeAt(0)) >>> 0;
  return value.toString(36);
}

/** @returns {Group[]} */
export function groups() {
  const bad = Object.values(state.clusters).filter((cluster) => BAD.includes(cluster.state)).sort(worstFirst);
  /** @type {Map<string, Group>} */
  const found = new Map();
  for (const cluster of bad) {
    const problem = worst(cluster)?.problem;
    const text = `${cluster.state} ${problem?.condition} ${problem?.reason} ${problem?.remedy?.general}`;
    const key = `${problem?.reason || cluster.state}-${hash(text)}`;
    const group = found.get(key) ?? { key, state: cluster.state, clusters: [] };
    group.clusters.push(cluster);
    found.set(key, group);
  }
  const order = (/** @type {Group} */ group) => STATES.indexOf(group.state);
  return [...found.values()].sort((a, b) => order(a) - order(b) || b.clusters.length - a.clusters.length);
}

/** What a drawing of `group` depends on. @param {Group} group */
function keyOf(group) {
  return JSON.stringify(group.clusters.map((cluster) => [cluster.id, worst(cluster)?.problem, worst(cluster)?.since]));
}

/** What draws all groups again. @param {Group[]} all */
export function attentionKey(all) {
  const named = (/** @type {Group} */ group) => keyOf({ ...group, clusters: group.clusters.slice(0, NAMED) });
  return JSON.stringify([location.hash, all.map((group) => [group.key, group.clusters.length, named(group)])]);
}

/** What to do about all of `group`. @param {Group} group */
function remedyOf(group) {
  const remedies = group.clusters.map((cluster) => worst(cluster)?.problem?.remedy);
  const texts = new Set(remedies.map((remedy) => remedy?.text));
  const first = remedies[0];
  return first && { text: texts.size > 1 ? first.general : first.text };
}

/** @param {Group} group */
function item(group) {
  const problem = worst(group.clusters[0])?.problem;
  const name = (/** @type {Cluster} */ { id }) => h("a", { href: clusterAddress(id), "data-key": `named ${id}` }, shortName(id));
  const names = group.clusters.slice(0, NAMED).flatMap((cluster, index) => [index ? ", " : "", name(cluster)]);
  const count = group.clusters.length;
  const all = count > NAMED && h("a", { class: "more", href: withQuery({ show: group.key }), "data-key": `show ${group.key}` }, `Show all ${number(count)}`);
  return h("li", { class: `problem ${group.state}` },
    h("h3", {}, badge(group.state, problem?.reason || group.state), h("span", { class: "problem-count" }, plural(count, "cluster"))),
    h("p", { class: "names" }, ...names, all && " … ", all),
    problem && causes(problem.message),
    advice(remedyOf(group)));
}

/** @param {Group[]} all */
export function attention(all) {
  if (all.length === 0) return [];
  return [h("section", { class: "attention", "aria-labelledby": "attention" },
    h("h2", { id: "attention" }, "Needs attention"), h("ul", { class: "problems" }, all.map(item)))];
}

/** @param {Group} group */
export function groupDrawer(group) {
  const draw = () => {
    const same = (/** @type {Cluster} */ cluster) => cluster.components.filter((one) => one.state === group.state);
    const all = group.clusters.flatMap((cluster) => same(cluster).map((one) => diagnosis(cluster.id, one)));
    const items = group.clusters.map((cluster) => h("li", {},
      h("p", {}, h("a", { href: clusterAddress(cluster.id), "data-key": `drawer ${cluster.id}` }, shortName(cluster.id)), " ", since(worst(cluster)?.since)),
      h("p", { class: "message" }, worst(cluster)?.problem?.message ?? "")));
    return [
      h("p", { class: "drawer-actions" }, badge(group.state), copyButton(all.join("\n\n"), "Copy diagnosis", "of all clusters")),
      advice(remedyOf(group)),
      h("ul", { class: "drawer-list" }, items),
    ];
  };
  const reason = worst(group.clusters[0])?.problem?.reason || group.state;
  return { title: `${reason}: ${plural(group.clusters.length, "cluster")}`, key: `${group.key} ${keyOf(group)}`, draw };
}
