// The frame of the page: the header, and the view that the address names.

import { activityView } from "./activity.js";
import { clusterView } from "./cluster.js";
import { clustersView } from "./clusters.js";
import { failure, refreshAges } from "./dom.js";
import { hideDrawer } from "./drawer.js";
import { header } from "./header.js";
import { overviewView } from "./overview.js";
import { resourceView } from "./resource.js";
import { route } from "./route.js";
import { follow, isLoaded, refusal, subscribe } from "./store.js";
import { versionsView } from "./versions.js";

/**
 * A view. `update` gets the identifiers of the clusters that changed, or null for all, also when
 * the parameters in the address change. `close` ends what it listens to.
 * @typedef {{title: string, element: HTMLElement, update: (changed: Set<string> | null) => void, close?: () => void}} View
 */

const main = /** @type {HTMLElement} */ (document.getElementById("main"));
const top = header(/** @type {HTMLElement} */ (document.getElementById("top")));

/** @type {View | null} */
let view = null;
/** The path of the view. */
let shown = "";
/** Where people were in each view. @type {Map<string, number>} */
const places = new Map();

/** @param {string[]} path @returns {View} */
function open([kind, ...rest]) {
  switch (kind) {
    case "clusters": return clustersView();
    case "versions": return versionsView();
    case "activity": return activityView();
    case "cluster": return clusterView(rest.join("/"));
    case "resource": return resourceView(rest);
    default: return overviewView();
  }
}

/** @param {Set<string> | null} changed */
function update(changed) {
  top.update();
  if (refusal) {
    main.replaceChildren(failure(refusal));
    return;
  }
  if (!isLoaded) return;
  const { path } = route();
  const now = path.join("/");
  if (view && shown === now) {
    view.update(changed);
    return;
  }
  const isFirst = view === null;
  if (!isFirst) places.set(shown, scrollY);
  view?.close?.();
  hideDrawer();
  shown = now;
  view = open(path);
  document.title = `${view.title} · Knative operator`;
  main.replaceChildren(view.element);
  view.update(null);
  // A screen reader continues at the new view.
  if (!isFirst) {
    main.focus({ preventScroll: true });
    scrollTo(0, places.get(now) ?? 0);
  }
}

addEventListener("hashchange", () => update(null));
document.querySelector(".skip")?.addEventListener("click", (event) => {
  event.preventDefault(); // the fragment is the address of the view
  main.focus();
});
addEventListener("keydown", (event) => {
  const isTyping = event.target instanceof HTMLInputElement || event.ctrlKey || event.metaKey || event.altKey;
  const search = main.querySelector("input[type=search]");
  if (event.key !== "/" || isTyping || !(search instanceof HTMLElement)) return;
  event.preventDefault();
  search.focus();
});
setInterval(refreshAges, 1000);
subscribe(update);
follow();
