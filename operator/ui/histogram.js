// How much happened in each minute of the last hour.

import { h, number } from "./dom.js";
import { TOPICS } from "./timeline.js";

/** Time that it shows in milliseconds, and its bars. */
const SPAN = 60 * 60 * 1000;
const BARS = 60;
/** Height of a bar with one entry, in percent: it is visible beside one with a hundred. */
const LEAST = 8;

/** A bar. @param {Record<string, number>} counts by topic @param {number} height */
function column(counts, height) {
  const parts = Object.keys(TOPICS).filter((topic) => counts[topic]).map((topic) => {
    const part = h("span", { class: TOPICS[topic].look });
    part.style.flexGrow = String(counts[topic]);
    return part;
  });
  const bar = h("span", { class: "column" }, parts);
  bar.style.height = `${height}%`;
  return bar;
}

/** @param {import("./store.js").Activity[]} entries @param {number} now */
export function histogram(entries, now) {
  const bars = Array.from({ length: BARS }, () => /** @type {Record<string, number>} */ ({}));
  for (const entry of entries) {
    const bar = bars[BARS - 1 - Math.floor(((now - Date.parse(entry.at)) / SPAN) * BARS)];
    if (bar) bar[entry.topic] = (bar[entry.topic] ?? 0) + entry.count;
  }
  const sums = bars.map((bar) => Object.values(bar).reduce((sum, count) => sum + count, 0));
  const most = Math.max(1, ...sums);
  const heights = sums.map((sum) => (sum ? LEAST + (100 - LEAST) * Math.sqrt(sum / most) : 0));
  const total = sums.reduce((sum, count) => sum + count, 0);
  const label = `${number(total)} in the last hour, at most ${number(Math.max(...sums))} a minute`;
  return h("div", { class: "histogram", role: "img", "aria-label": label },
    h("div", { class: "plot" }, bars.map((bar, index) => column(bar, heights[index]))),
    h("div", { class: "axis" }, ["1 h ago", "30 min", "now"].map((text) => h("span", {}, text))));
}
