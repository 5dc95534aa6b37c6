// Clusters by the versions of both components: where their minor versions differ.

import { h, number, ornament, plural, spoken } from "./dom.js";
import { address } from "./route.js";
import { rowHead, scrolling, table } from "./table.js";
import { KINDS, NONE, count, label, newestFirst, versionOf } from "./version.js";

/** @param {string} a @param {string} b */
function isSkewed(a, b) {
  const minor = (/** @type {string} */ version) => version.split(".").slice(0, 2).join(".");
  return a !== NONE && b !== NONE && minor(a) !== minor(b);
}

/** @param {string} serving @param {string} eventing @param {number} amount @param {number} total */
function cell(serving, eventing, amount, total) {
  if (!amount) return h("td", {}, ornament("·", "dim"));
  const version = `${KINDS[0]}:${serving} ${KINDS[1]}:${eventing}`;
  const link = h("a", { href: address(["clusters"], { version }), "data-key": version },
    number(amount), spoken(` clusters with Serving ${label(serving)} and Eventing ${label(eventing)}`));
  const td = h("td", { class: isSkewed(serving, eventing) ? "skewed" : "even" }, link);
  td.style.setProperty("--share", String(amount / total));
  return td;
}

/** @param {import("./store.js").Cluster[]} clusters */
export function matrix(clusters) {
  const all = clusters.map((cluster) => KINDS.map((kind) => versionOf(cluster, kind)));
  const pairs = all.filter(([serving, eventing]) => serving && eventing);
  if (pairs.length === 0) return null;
  const counts = count(pairs.map((pair) => pair.join(" ")));
  const [rows, columns] = KINDS.map((_, index) => [...new Set(pairs.map((pair) => pair[index]))].sort(newestFirst));
  const skewed = pairs.filter(([serving, eventing]) => isSkewed(serving, eventing)).length;
  const body = rows.map((serving) => h("tr", {}, rowHead(h("code", {}, label(serving))),
    columns.map((eventing) => cell(serving, eventing, counts.get(`${serving} ${eventing}`) ?? 0, pairs.length))));
  const heads = ["Serving ↓ Eventing →", ...columns.map((version) => h("code", {}, label(version)))];
  const text = skewed > 0 ? `${plural(skewed, "cluster")} with different minor versions of both` : "Both have the same minor version everywhere.";
  return h("section", { class: "panel", "aria-labelledby": "skew" },
    h("h2", { id: "skew" }, "Serving and Eventing on the same cluster"), h("p", { class: "dim" }, text),
    scrolling(table({ name: "matrix", label: "Clusters by the versions of Serving and Eventing", heads }, body)));
}
