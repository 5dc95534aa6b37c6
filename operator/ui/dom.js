// Elements, times and numbers.

/** @typedef {string | Node | null | undefined | false} Child */

/** @param {Child} child @returns {child is string | Node} */
function isShown(child) {
  return child !== null && child !== undefined && child !== false;
}

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
  element.append(...children.flat().filter(isShown));
  return element;
}

/** The keys of what was drawn. @type {WeakMap<HTMLElement, string>} */
const drawn = new WeakMap();

/**
 * Replaces the children of `element`, if `key` differs from that of the last time. The focus and
 * what is open stay where they are: elements that have `data-key`.
 * @param {HTMLElement} element
 * @param {string} key
 * @param {() => (Child | Child[])[]} draw
 */
export function redraw(element, key, draw) {
  if (drawn.get(element) === key) return;
  drawn.set(element, key);
  const keyOf = (/** @type {Element | null} */ node) => (node instanceof HTMLElement && element.contains(node) ? node.dataset.key : undefined);
  const focused = keyOf(document.activeElement);
  /** @type {Map<string, boolean>} */
  const open = new Map();
  for (const details of element.querySelectorAll("details[data-key]")) {
    if (details.hasAttribute("data-touched")) open.set(keyOf(details) ?? "", details.hasAttribute("open"));
  }
  element.replaceChildren(...draw().flat().filter(isShown));
  for (const node of element.querySelectorAll("[data-key]")) {
    const own = keyOf(node) ?? "";
    if (open.has(own)) {
      node.toggleAttribute("open", open.get(own));
      node.setAttribute("data-touched", "");
    }
    if (focused && own === focused && node instanceof HTMLElement) node.focus({ preventScroll: true });
  }
}

/**
 * Something that opens, and stays as the user left it when the view is drawn again.
 * @param {string} key
 * @param {Child} summary
 * @param {...(Child | Child[])} children
 */
export function foldable(key, summary, ...children) {
  const onclick = (/** @type {Event} */ event) => /** @type {HTMLElement} */ (event.currentTarget).parentElement?.setAttribute("data-touched", "");
  return h("details", { "data-key": key }, h("summary", { "data-key": `${key} summary`, onclick }, summary), ...children);
}

/** Text for screen readers only. @param {string} text */
export function spoken(text) {
  return h("span", { class: "hidden" }, text);
}

/** Text that screen readers skip. @param {string} text @param {string} [name] a class */
export function ornament(text, name) {
  return h("span", { class: name, "aria-hidden": "true" }, text);
}

/** @param {number} count */
export function number(count) {
  return count.toLocaleString("en");
}

/**
 * @param {number} count
 * @param {string} noun
 */
export function plural(count, noun) {
  return `${number(count)} ${noun}${count === 1 ? "" : "s"}`;
}

/** @param {number} seconds */
export function duration(seconds) {
  if (seconds < 120) return `${Math.round(seconds)}s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86400)}d`;
}

/**
 * The time since `time`, as kubectl prints ages.
 * @param {string | undefined} time
 * @param {number} [end]
 */
export function age(time, end = Date.now()) {
  const seconds = Math.max(0, Math.round((end - Date.parse(time ?? "")) / 1000));
  return Number.isNaN(seconds) ? "" : duration(seconds);
}

/**
 * A time that shows its age, kept up to date by {@link refreshAges}.
 * @param {string | undefined} time
 * @param {string} [suffix]
 */
export function since(time, suffix = "") {
  if (!time || Number.isNaN(Date.parse(time))) return "";
  return h("time", { datetime: time, title: new Date(time).toLocaleString(), "data-suffix": suffix }, `${age(time)}${suffix}`);
}

/** Updates all ages on the page. */
export function refreshAges() {
  for (const element of document.querySelectorAll("time[datetime]")) {
    const text = `${age(element.getAttribute("datetime") ?? "")}${element.getAttribute("data-suffix") ?? ""}`;
    if (element.textContent !== text) element.textContent = text;
  }
}

/** @param {unknown} error */
export function failure(error) {
  return h("p", { class: "note", role: "alert" }, error instanceof Error ? error.message : String(error));
}
