// Elements, times, and states.

/** @typedef {string | Node | null | undefined | false} Child */

/**
 * Creates an element. Properties that begin with "on" are listeners.
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElement}
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false).map((child) => /** @type {string | Node} */ (child)));
  return element;
}

/** Symbols of states: shapes differ without colors, too. */
export const SYMBOLS = /** @type {Record<string, string>} */ ({
  Ready: "✔",
  Pending: "○",
  Progressing: "◔",
  Terminating: "⌫",
  Degraded: "▲",
  Unreachable: "?",
  Failed: "✖",
});

/** States, from bad to good. */
export const STATES = ["Failed", "Unreachable", "Degraded", "Terminating", "Progressing", "Pending", "Ready"];

/** @param {string} state */
export function badge(state) {
  return h("span", { class: `badge ${state}` }, h("span", { "aria-hidden": "true" }, `${SYMBOLS[state] ?? "•"} `), state);
}

/**
 * The time since `time`, as kubectl prints ages.
 * @param {string | undefined} time
 * @param {number} [end]
 */
export function age(time, end = Date.now()) {
  const seconds = Math.max(0, Math.round((end - Date.parse(time ?? "")) / 1000));
  if (Number.isNaN(seconds)) return "";
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86400)}d`;
}

/**
 * A time that shows its age, kept up to date by {@link refreshAges}.
 * @param {string | undefined} time
 * @param {string} [suffix]
 */
export function since(time, suffix = "") {
  if (!time) return "";
  return h("time", { datetime: time, title: time, "data-suffix": suffix }, `${age(time)}${suffix}`);
}

/** Updates all ages on the page. */
export function refreshAges() {
  for (const element of document.querySelectorAll("time[datetime]")) {
    const text = `${age(element.getAttribute("datetime") ?? "")}${element.getAttribute("data-suffix") ?? ""}`;
    if (element.textContent !== text) element.textContent = text;
  }
}

/**
 * What to do, with commands as code.
 * @param {{text: string} | undefined} remedy
 */
export function advice(remedy) {
  if (!remedy) return null;
  const parts = remedy.text.replace(/\[([^\]]*)\]\([^)]*\)/g, "$1").split("`");
  return h("p", { class: "advice" }, h("strong", {}, "What to do: "), ...parts.map((part, index) => (index % 2 ? h("code", {}, part) : part)));
}

/**
 * The link to a view.
 * @param {string} kind
 * @param {string} id
 */
export function link(kind, id) {
  return `#/${kind}/${id.split("/").map(encodeURIComponent).join("/")}`;
}
