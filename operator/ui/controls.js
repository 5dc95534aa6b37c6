// What filters a view: a search and chips, whose values are in the address.

import { h, number, ornament } from "./dom.js";
import { change, route } from "./route.js";

/** Delay after a key before the view is searched, in milliseconds. */
const TYPING = 120;

/**
 * A search field, whose text is `q` in the address.
 * @param {string} label
 * @param {string} placeholder
 */
export function searchField(label, placeholder) {
  let timer = 0;
  const oninput = () => {
    clearTimeout(timer);
    timer = setTimeout(() => change({ q: field.value }, { isTyped: true }), TYPING);
  };
  const attributes = { type: "search", placeholder, "aria-label": label, "aria-keyshortcuts": "/", oninput };
  const field = /** @type {HTMLInputElement} */ (h("input", attributes));
  /** Shows what the address has, unless the user is typing. */
  const update = () => {
    if (document.activeElement !== field) field.value = route().query.get("q") ?? "";
  };
  return { field, update, close: () => clearTimeout(timer) };
}

/** The words that are searched for. */
export function wordsOf(/** @type {URLSearchParams} */ query) {
  return (query.get("q") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
}

/**
 * A button that adds `value` to a list in the address, or removes it.
 * @param {{name: string, value: string, all: string[], text: string, symbol: string, look: string, count: number}} about
 *   parameter, value, the values that are chosen, and what it shows
 */
export function chip({ name, value, all, text, symbol, look, count }) {
  const isChosen = all.includes(value);
  const next = isChosen ? all.filter((one) => one !== value) : [...all, value];
  const onclick = () => change({ [name]: next.join(",") });
  return h("button", { type: "button", class: `chip ${look}`, "data-key": `chip ${value}`, "aria-pressed": String(isChosen), onclick },
    ornament(symbol, "symbol"), `${text} `, h("span", { class: "chip-count" }, number(count)));
}

/** The frame of a search and chips. @param {...import("./dom.js").Child} children */
export function filterBar(...children) {
  return h("div", { class: "filters", role: "group", "aria-label": "Filters" }, ...children);
}
