// The frame of the page: summary, connection, and the view that the address names.

import { SYMBOLS, STATES, h, refreshAges, since } from "./dom.js";
import { clusterView, resourceView } from "./details.js";
import { fleetsView } from "./fleets.js";
import { follow, isLoaded, refusal, serverLostAt, state, subscribe } from "./store.js";

/** @typedef {{title: string, element: HTMLElement, update: (changed: Set<string> | null) => void}} View */

const main = /** @type {HTMLElement} */ (document.getElementById("main"));
const summary = /** @type {HTMLElement} */ (document.getElementById("summary"));
const connection = /** @type {HTMLElement} */ (document.getElementById("connection"));

/** @type {View | null} */
let view = null;
/** The address of the view. */
let shown = "";

/** @returns {View} */
function open() {
  const [, kind, ...rest] = location.hash.replace(/^#/, "").split("/").map(decodeURIComponent);
  if (kind === "cluster") return clusterView(rest.join("/"));
  if (kind === "resource") return resourceView(rest.join("/"));
  return fleetsView();
}

function frame() {
  const counts = STATES.filter((name) => state.clustersByState[name]);
  const total = Object.keys(state.clusters).length;
  const parts = counts.map((name) => h("span", { class: `count ${name}` }, `${SYMBOLS[name]} ${state.clustersByState[name]} ${name}`));
  const text = `${total} ${total === 1 ? "cluster" : "clusters"}`;
  const key = text + JSON.stringify(state.clustersByState);
  if (summary.dataset.key !== key) {
    summary.dataset.key = key;
    summary.replaceChildren(h("span", {}, text), ...parts);
  }
  const { connected, since: lostAt, error } = state.connection;
  const lost = serverLostAt ?? (connected ? null : lostAt ?? null);
  const why = serverLostAt ? "knative-operator ui does not answer" : error ?? "";
  const lostKey = lost ? `${lost}${why}` : "";
  if (connection.dataset.key !== lostKey) {
    connection.dataset.key = lostKey;
    connection.classList.toggle("lost", Boolean(lost));
    const clock = lost ? new Date(lost).toLocaleTimeString() : "";
    connection.replaceChildren(...(lost ? [`⚠ Reconnecting since ${clock} (`, since(lost), `): ${why}. The page shows the last known state.`] : []));
  }
}

/** @param {Set<string> | null} changed */
function update(changed) {
  frame();
  if (refusal) {
    main.replaceChildren(h("p", { class: "note", role: "alert" }, refusal));
    return;
  }
  if (!isLoaded) return;
  if (!view || shown !== location.hash) {
    const isFirst = view === null;
    shown = location.hash;
    view = open();
    document.title = `${view.title} · Knative operator`;
    main.replaceChildren(view.element);
    view.update(null);
    // A screen reader continues at the new view.
    if (!isFirst) main.focus({ preventScroll: false });
    return;
  }
  view.update(changed);
}

addEventListener("hashchange", () => {
  if (location.hash.startsWith("#main")) return;
  update(null);
});
setInterval(refreshAges, 1000);
subscribe(update);
follow();
