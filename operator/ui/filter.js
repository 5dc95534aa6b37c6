// Which clusters are shown, and in which order: as the address says.

import { wordsOf } from "./controls.js";
import { STATES, versionText, worst } from "./states.js";
import { targetOf } from "./target.js";

/** @typedef {import("./store.js").Cluster} Cluster */
/** @typedef {{words: string[], states: Set<string>, fleet: string, version: string, sort: string, isDescending: boolean}} Filter */

/** @param {URLSearchParams} query @returns {Filter} */
export function readFilter(query) {
  const sort = query.get("sort") ?? "state";
  const states = (query.get("state") ?? "").split(",").filter((name) => STATES.includes(name));
  return {
    words: wordsOf(query),
    states: new Set(states),
    fleet: query.get("fleet") ?? "",
    version: query.get("version") ?? "",
    sort: sort.replace(/^-/, ""),
    isDescending: sort.startsWith("-"),
  };
}

/** @type {WeakMap<Cluster, string>} */
const texts = new WeakMap();

/** What a search looks at: a cluster that changes is another object. @param {Cluster} cluster */
function text(cluster) {
  const known = texts.get(cluster);
  if (known !== undefined) return known;
  const properties = Object.entries(cluster.properties ?? {}).map(([name, value]) => `${name}=${value}`);
  const components = cluster.components.flatMap((one) => [one.kind, one.namespace, one.name, one.version, one.targetVersion, one.problem?.reason, one.problem?.message]);
  const made = [cluster.id, cluster.state, cluster.fleet, cluster.server, ...properties, ...components].filter(Boolean).join(" ").toLowerCase();
  texts.set(cluster, made);
  return made;
}

/** Whether `version`, such as "KnativeServing:1.22.1" or "behind", is that of `cluster`. @param {Cluster} cluster @param {string} version */
function hasVersion(cluster, version) {
  if (version === "behind") return cluster.components.some((one) => targetOf(cluster, one));
  const [kind, wanted] = version.split(":");
  return cluster.components.some((one) => one.kind === kind && (one.version ?? "none") === wanted);
}

/** @param {Cluster} cluster @param {Filter} filter */
export function matches(cluster, { words, states, fleet, version }) {
  return (states.size === 0 || states.has(cluster.state))
    && (!fleet || cluster.fleet === fleet)
    && (!version || version.split(" ").every((one) => hasVersion(cluster, one)))
    && words.every((word) => text(cluster).includes(word));
}

/** @param {Cluster} cluster @param {string} kind */
export function componentOf(cluster, kind) {
  return cluster.components.find((one) => one.kind === kind);
}

/** The last repaired drift. @param {Cluster} cluster */
export function repairedAt(cluster) {
  return cluster.components.map((one) => one.repairedAt ?? "").sort().at(-1) ?? "";
}

/** @type {Record<string, (cluster: Cluster) => string>} */
const KEYS = {
  name: (cluster) => cluster.id,
  state: (cluster) => String(STATES.indexOf(cluster.state)),
  serving: (cluster) => versionKey(cluster, "KnativeServing"),
  eventing: (cluster) => versionKey(cluster, "KnativeEventing"),
  fleet: (cluster) => cluster.fleet ?? "",
  drift: repairedAt,
  since: (cluster) => worst(cluster)?.since ?? "",
};

/** @param {Cluster} cluster @param {string} kind */
function versionKey(cluster, kind) {
  const component = componentOf(cluster, kind);
  return component ? versionText(component) : "";
}

const collator = new Intl.Collator("en", { numeric: true });

/** @param {Cluster[]} clusters @param {Filter} filter */
export function sorted(clusters, { sort, isDescending }) {
  const key = Object.hasOwn(KEYS, sort) ? KEYS[sort] : KEYS.state;
  const keys = new Map(clusters.map((cluster) => [cluster, key(cluster)]));
  const compare = (/** @type {Cluster} */ a, /** @type {Cluster} */ b) => collator.compare(keys.get(a) ?? "", keys.get(b) ?? "");
  const sign = isDescending ? -1 : 1;
  return clusters.sort((a, b) => sign * compare(a, b) || collator.compare(a.id, b.id));
}
