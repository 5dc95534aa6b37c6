// Tables.

import { h } from "./dom.js";

/** @typedef {import("./dom.js").Child} Child */

/**
 * @param {{name: string, label: string, heads: Child[], hasHiddenHead?: boolean}} about class, name
 *   for screen readers, and headings of the columns
 * @param {HTMLElement[]} rows
 */
export function table({ name, label, heads, hasHiddenHead = false }, rows) {
  const head = h("tr", {}, heads.map((text) => h("th", { scope: "col" }, text)));
  return h("table", { class: name, "aria-label": label }, h("thead", { class: hasHiddenHead && "hidden" }, head), h("tbody", {}, rows));
}

/** A table that may be wider than the screen. @param {HTMLElement} wide */
export function scrolling(wide) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": wide.getAttribute("aria-label") }, wide);
}

/** A heading of a row. @param {...Child} children */
export function rowHead(...children) {
  return h("th", { scope: "row" }, ...children);
}
