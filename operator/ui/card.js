// The card beside a cell that the pointer or the focus is on.

import { h, since } from "./dom.js";
import { badge, shortName, versionText, worst } from "./states.js";
import { state } from "./store.js";

/** Distance from the cell, in pixels. */
const GAP = 6;

const card = h("div", { class: "card", role: "tooltip" });

/** @param {string} id */
function contents(id) {
  const cluster = state.clusters[id];
  if (!cluster) return [];
  const component = worst(cluster);
  const rows = cluster.components.map((one) => h("p", {}, `${one.kind.replace("Knative", "")} `, h("code", {}, versionText(one))));
  const why = component?.problem && h("p", {}, component.problem.reason || component.problem.condition);
  const head = h("p", { class: "card-head" }, h("strong", {}, shortName(id)), badge(cluster.state), since(component?.since));
  return /** @type {Node[]} */ ([head, ...rows, why].filter(Boolean));
}

/** @param {Element} cell */
function place(cell) {
  const [at, own] = [cell.getBoundingClientRect(), card.getBoundingClientRect()];
  const left = Math.min(at.left, innerWidth - own.width - GAP);
  const below = at.bottom + GAP;
  const top = below + own.height > innerHeight ? at.top - own.height - GAP : below;
  card.style.left = `${Math.max(GAP, left)}px`;
  card.style.top = `${top}px`;
}

function hide() {
  card.remove();
}

/**
 * Shows it for the cells in `element`, which have `data-id`.
 * @param {HTMLElement} element
 */
export function showCards(element) {
  const show = (/** @type {Event} */ event) => {
    const cell = event.target instanceof Element ? event.target.closest("[data-id]") : null;
    const nodes = cell ? contents(cell.getAttribute("data-id") ?? "") : [];
    if (!cell || nodes.length === 0) {
      hide();
      return;
    }
    card.replaceChildren(...nodes);
    document.getElementById("main")?.append(card);
    place(cell);
  };
  element.addEventListener("pointerover", show);
  element.addEventListener("focusin", show);
  element.addEventListener("pointerleave", hide);
  element.addEventListener("focusout", hide);
}

addEventListener("scroll", hide, { passive: true });
addEventListener("hashchange", hide);
addEventListener("keydown", (event) => {
  if (event.key === "Escape") hide();
});
