// Clusters as a grid of cells: one tab stop, arrow keys move. Those that are Ready recede.

import { showCards } from "./card.js";
import { h } from "./dom.js";
import { SYMBOLS, describe, worstFirst } from "./states.js";
import { clusterAddress } from "./route.js";
import { state } from "./store.js";

/** Width of a cell, in the size of the text of the page: as in views.css. */
const CELL = 1.75;
/** Rows of a chunk, which the browser draws only while it is on the screen. */
const ROWS = 8;
/** Minimum interval in which the order changes, in milliseconds: cells that jump can't be hit. */
const ORDER_INTERVAL = 1000;

export class Grid {
  /** @param {string} label */
  constructor(label) {
    this.element = h("div", { class: "grid", role: "group", "aria-label": label });
    this.element.addEventListener("keydown", (event) => this.move(event));
    /** @type {Map<string, HTMLElement>} */
    this.cells = new Map();
    /** @type {string[]} */
    this.order = [];
    /** @type {string[]} */
    this.ids = [];
    this.columns = 0;
    this.orderedAt = -ORDER_INTERVAL;
    this.timer = 0;
    showCards(this.element);
    this.observer = new ResizeObserver(() => this.fit());
    this.observer.observe(this.element);
  }

  /**
   * @param {string[]} ids
   * @param {Set<string> | null} changed
   */
  update(ids, changed) {
    const isSame = ids.length === this.ids.length && ids.every((id, index) => id === this.ids[index]);
    this.ids = ids;
    for (const id of changed ?? ids) this.paint(id);
    if (!isSame || this.order.length === 0) this.sort();
    else if ([...(changed ?? ids)].some((id) => this.cells.has(id))) this.sortSoon();
  }

  /** Shows the state of a cluster. @param {string} id */
  paint(id) {
    const [cell, cluster] = [this.cells.get(id), state.clusters[id]];
    if (!cell || !cluster) return;
    const label = describe(cluster);
    if (cell.getAttribute("aria-label") === label) return;
    cell.setAttribute("aria-label", label);
    cell.className = `cell ${cluster.state}`;
    cell.textContent = cluster.state === "Ready" ? "" : SYMBOLS[cluster.state];
  }

  sortSoon() {
    if (this.timer) return;
    const rest = Math.max(0, this.orderedAt + ORDER_INTERVAL - performance.now());
    this.timer = setTimeout(() => this.sort(), rest);
  }

  sort() {
    clearTimeout(this.timer);
    this.timer = 0;
    this.orderedAt = performance.now();
    const clusters = this.ids.map((id) => state.clusters[id]).filter((cluster) => cluster !== undefined);
    const order = clusters.sort(worstFirst).map((cluster) => cluster.id);
    if (order.length === this.order.length && order.every((id, index) => id === this.order[index])) return;
    const gone = new Set(this.cells.keys());
    for (const id of order) {
      gone.delete(id);
      if (this.cells.has(id)) continue;
      this.cells.set(id, h("a", { class: "cell", href: clusterAddress(id), "data-id": id, tabindex: "-1" }));
      this.paint(id);
    }
    for (const id of gone) this.cells.delete(id);
    this.order = order;
    this.columns = 0;
    this.fit();
  }

  /** Puts the cells into chunks of whole rows. */
  fit() {
    const size = parseFloat(getComputedStyle(document.documentElement).fontSize) * CELL;
    const columns = Math.max(1, Math.floor(this.element.clientWidth / size));
    if (columns === this.columns) return;
    this.columns = columns;
    this.element.style.setProperty("--columns", String(columns));
    const focused = this.element.contains(document.activeElement) ? document.activeElement : null;
    const chunks = [];
    for (let start = 0; start < this.order.length; start += columns * ROWS) {
      const ids = this.order.slice(start, start + columns * ROWS);
      const chunk = h("div", { class: "chunk" }, ids.map((id) => this.cells.get(id)));
      chunk.style.containIntrinsicHeight = `${Math.ceil(ids.length / columns) * size}px`;
      chunks.push(chunk);
    }
    this.element.replaceChildren(...chunks);
    if (!this.element.querySelector("[tabindex='0']")) this.cells.get(this.order[0])?.setAttribute("tabindex", "0");
    if (focused instanceof HTMLElement && focused.isConnected) focused.focus({ preventScroll: true });
  }

  /** @param {KeyboardEvent} event */
  move(event) {
    const at = this.order.indexOf(document.activeElement?.getAttribute("data-id") ?? "");
    const steps = /** @type {Record<string, number>} */ ({
      ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at + this.columns, ArrowUp: at - this.columns,
      Home: 0, End: this.order.length - 1,
    });
    if (at < 0 || !(event.key in steps)) return;
    event.preventDefault();
    const next = this.cells.get(this.order[Math.min(Math.max(steps[event.key], 0), this.order.length - 1)]);
    for (const cell of this.element.querySelectorAll("[tabindex='0']")) cell.setAttribute("tabindex", "-1");
    next?.setAttribute("tabindex", "0");
    next?.focus();
  }

  close() {
    this.observer.disconnect();
    clearTimeout(this.timer);
  }
}
