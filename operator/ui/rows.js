// The rows of a long table: those on the screen, and a few more.

import { h } from "./dom.js";

/** Rows above and below the screen. */
const SPARE = 12;

/**
 * @template T
 */
export class Rows {
  /**
   * @param {HTMLElement} body the `tbody`
   * @param {(item: T) => string} idOf
   * @param {(item: T) => string} keyOf what a row depends on
   * @param {(item: T) => HTMLElement[]} cells
   */
  constructor(body, idOf, keyOf, cells) {
    this.body = body;
    this.idOf = idOf;
    this.keyOf = keyOf;
    this.cells = cells;
    /** @type {T[]} */
    this.items = [];
    /** @type {Map<string, {key: string, row: HTMLElement}>} */
    this.rows = new Map();
    const spacer = () => h("tr", { class: "spacer", "aria-hidden": "true" }, h("td", {}));
    this.above = spacer();
    this.below = spacer();
    this.onscroll = () => this.draw();
    addEventListener("scroll", this.onscroll, { passive: true });
    addEventListener("resize", this.onscroll);
    body.addEventListener("keydown", (event) => this.move(event));
  }

  /** @param {T[]} items */
  update(items) {
    this.items = items;
    this.draw();
  }

  /** Height of a row in pixels: as in views.css. */
  height() {
    const size = parseFloat(getComputedStyle(document.documentElement).fontSize);
    return parseFloat(getComputedStyle(this.body).getPropertyValue("--row")) * size;
  }

  draw() {
    const height = this.height();
    const top = this.body.getBoundingClientRect().top;
    const first = Math.max(0, Math.min(Math.floor(-top / height) - SPARE, this.items.length - 1));
    const last = Math.min(this.items.length, Math.ceil((innerHeight - top) / height) + SPARE);
    const shown = this.items.slice(first, last);
    const kept = new Map();
    shown.forEach((item, index) => {
      const [id, key] = [this.idOf(item), this.keyOf(item)];
      let known = this.rows.get(id);
      if (!known) known = { key: "", row: h("tr", {}) };
      if (known.key !== key) {
        const hasFocus = known.row.contains(document.activeElement);
        known.row.replaceChildren(...this.cells(item));
        if (hasFocus) known.row.querySelector("a")?.focus({ preventScroll: true });
        known.key = key;
      }
      known.row.setAttribute("aria-rowindex", String(first + index + 2));
      kept.set(id, known);
    });
    const wanted = [this.above, ...[...kept.values()].map(({ row }) => row), this.below];
    const isSame = wanted.length === this.body.children.length && wanted.every((row, index) => row === this.body.children[index]);
    this.rows = kept;
    if (!isSame) this.place(wanted);
    this.above.style.height = `${first * height}px`;
    this.below.style.height = `${(this.items.length - first - shown.length) * height}px`;
    this.above.hidden = first === 0;
    this.below.hidden = first + shown.length === this.items.length;
  }

  /** Moves only what is elsewhere: the focus stays. @param {HTMLElement[]} wanted */
  place(wanted) {
    const set = new Set(/** @type {Element[]} */ (wanted));
    for (const row of [...this.body.children]) if (!set.has(row)) row.remove();
    wanted.forEach((row, index) => {
      const now = this.body.children[index];
      if (now !== row) this.body.insertBefore(row, now ?? null);
    });
  }

  /** Arrow keys go to the rows above and below. @param {KeyboardEvent} event */
  move(event) {
    const rows = [...this.rows.values()].map(({ row }) => row);
    const at = rows.findIndex((row) => row.contains(document.activeElement));
    const steps = /** @type {Record<string, number>} */ ({ ArrowDown: 1, ArrowUp: -1 });
    const next = rows[at + (steps[event.key] ?? 0)];
    if (at < 0 || !(event.key in steps) || !next) return;
    event.preventDefault();
    next.querySelector("a")?.focus();
  }

  close() {
    removeEventListener("scroll", this.onscroll);
    removeEventListener("resize", this.onscroll);
  }
}
