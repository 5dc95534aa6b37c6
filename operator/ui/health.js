// How many clusters are in which state: a bar, and links to those clusters.

import { h, number, ornament, plural, redraw } from "./dom.js";
import { BAD, STATES, SYMBOLS } from "./states.js";
import { address } from "./route.js";
import { state } from "./store.js";

function headline() {
  const total = Object.keys(state.clusters).length;
  const bad = BAD.reduce((sum, name) => sum + (state.clustersByState[name] ?? 0), 0);
  const ready = state.clustersByState.Ready ?? 0;
  if (bad > 0) return `${plural(bad, "cluster")} of ${number(total)} ${bad === 1 ? "needs" : "need"} attention`;
  if (ready === total) return total === 1 ? "The cluster is Ready" : `All ${plural(total, "cluster")} are Ready`;
  return `${number(ready)} of ${plural(total, "cluster")} ${ready === 1 ? "is" : "are"} Ready`;
}

function draw() {
  const present = STATES.filter((name) => state.clustersByState[name]);
  const bar = h("div", { class: "health-bar", "aria-hidden": "true" }, [...present].reverse().map((name) => {
    const part = h("span", { class: name });
    part.style.flexGrow = String(state.clustersByState[name]);
    return part;
  }));
  const counts = present.map((name) => h("li", {}, h("a", { class: `count ${name}`, "data-key": `count ${name}`, href: address(["clusters"], { state: name }) },
    ornament(SYMBOLS[name], "symbol"), h("strong", {}, number(state.clustersByState[name])), ` ${name}`)));
  return [h("h2", { id: "health" }, headline()), bar, h("ul", { class: "counts" }, counts)];
}

export function health() {
  const element = h("section", { class: "health", "aria-labelledby": "health" });
  return { element, update: () => redraw(element, JSON.stringify(state.clustersByState), draw) };
}

/** What the user may not read. */
export function notes() {
  return state.notes.map((note) => h("p", { class: "note" }, `Cannot read ${note}`));
}
