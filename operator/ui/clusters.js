// All clusters as a table that can be searched, filtered and sorted.

import { chip, filterBar, searchField } from "./controls.js";
import { h, number, ornament, plural, redraw, spoken } from "./dom.js";
import { matches, readFilter, sorted } from "./filter.js";
import { notes } from "./health.js";
import { COLUMNS, cells } from "./row.js";
import { Rows } from "./rows.js";
import { STATES, SYMBOLS, shortName } from "./states.js";
import { change, route } from "./route.js";
import { state } from "./store.js";

/** @typedef {import("./store.js").Cluster} Cluster */

/** The states to filter by, with their numbers. */
function states() {
  const chosen = readFilter(route().query).states;
  const all = STATES.filter((name) => chosen.has(name));
  const present = STATES.filter((name) => state.clustersByState[name] || chosen.has(name));
  return present.map((name) => chip({
    name: "state", value: name, all, text: name, symbol: SYMBOLS[name], look: name, count: state.clustersByState[name] ?? 0,
  }));
}

/** What else the address filters by: each can be removed. */
function others() {
  const { query } = route();
  return ["fleet", "version"].filter((name) => query.get(name)).map((name) => {
    const value = query.get(name) === "behind" ? "not at target" : query.get(name);
    const onclick = () => change({ [name]: null });
    return h("button", { type: "button", class: "chip", "data-key": `remove ${name}`, onclick }, `${name}: ${value}`, ornament(" ✕"), spoken(", remove"));
  });
}

function heads() {
  const { sort, isDescending } = readFilter(route().query);
  return COLUMNS.map(([name, text]) => {
    const isSorted = sort === name;
    const order = isDescending ? "descending" : "ascending";
    const arrow = isDescending ? " ↓" : " ↑";
    const onclick = () => change({ sort: isSorted && !isDescending ? `-${name}` : name });
    const button = h("button", { type: "button", class: "sort", "data-key": `sort ${name}`, onclick }, text, ornament(isSorted ? arrow : ""));
    return h("th", { scope: "col", class: `col-${name}`, "aria-sort": isSorted && order }, button);
  });
}

/** @returns {import("./main.js").View} */
export function clustersView() {
  const search = searchField("Search clusters", "Name, label, version, reason…");
  const chips = h("div", { class: "chips" });
  const found = h("p", { class: "dim found", role: "status" });
  const head = h("tr", { "aria-rowindex": "1" });
  const body = h("tbody", {});
  const table = h("table", { class: "clusters", "aria-label": "Clusters" }, h("thead", {}, head), body);
  const none = h("p", { class: "none" }, "No cluster fits. ", h("a", { href: "#/clusters" }, "Show all clusters"));
  const warnings = h("div", {});
  const element = h("div", {}, h("h2", { class: "hidden" }, "Clusters"), warnings, filterBar(search.field, chips, found), table, none);
  const keyOf = (/** @type {Cluster} */ cluster) => JSON.stringify([cluster, shortName(cluster.id), location.hash]);
  /** @type {Rows<Cluster>} */
  const rows = new Rows(body, (cluster) => cluster.id, keyOf, cells);

  function update() {
    const filter = readFilter(route().query);
    search.update();
    redraw(warnings, JSON.stringify(state.notes), notes);
    redraw(chips, `${location.hash} ${JSON.stringify(state.clustersByState)}`, () => [...states(), ...others()]);
    redraw(head, `${filter.sort} ${filter.isDescending}`, heads);
    const all = Object.values(state.clusters);
    const fitting = sorted(all.filter((cluster) => matches(cluster, filter)), filter);
    table.setAttribute("aria-rowcount", String(fitting.length + 1));
    table.hidden = fitting.length === 0;
    none.hidden = fitting.length > 0;
    const part = fitting.length === all.length ? "" : `${number(fitting.length)} of `;
    const text = `${part}${plural(all.length, "cluster")}`;
    if (found.textContent !== text) found.textContent = text;
    rows.update(fitting);
  }

  function close() {
    search.close();
    rows.close();
  }
  return { title: "Clusters", element, update, close };
}
