// What happened lately on all clusters: one time line.

import { chip, filterBar, searchField, wordsOf } from "./controls.js";
import { failure, h, redraw } from "./dom.js";
import { histogram } from "./histogram.js";
import { route } from "./route.js";
import { load, state } from "./store.js";
import { TOPICS, timeline } from "./timeline.js";
import { count } from "./version.js";

/** @typedef {import("./store.js").Activity} Activity */

/** Minimum interval between requests, in milliseconds. */
const INTERVAL = 1000;
const EMPTY = "Nothing happened that fits. Kubernetes keeps events for an hour, by default.";

/** What the server answered last: people who return see it at once. @type {Activity[] | null} */
let entries = null;

/** @param {Activity} entry @param {string[]} words */
function fits({ cluster, namespace, name, kind, reason, message }, words) {
  const text = [cluster, namespace, name, kind, reason, message].join(" ").toLowerCase();
  return words.every((word) => text.includes(word));
}

/** The topics to filter by, with their numbers. @param {string[]} chosen @param {Map<string, number>} counts */
function topicChips(chosen, counts) {
  return Object.entries(TOPICS).map(([topic, { text, symbol, look }]) => chip({
    name: "topic", value: topic, all: chosen, text, symbol, look, count: counts.get(topic) ?? 0,
  }));
}

/** @returns {import("./main.js").View} */
export function activityView() {
  let timer = 0;
  let loadedAt = -INTERVAL;
  let isOpen = true;
  const search = searchField("Search activity", "Cluster, reason, message…");
  const chips = h("div", { class: "chips" });
  const plot = h("div", {});
  const list = h("div", { class: "panel" }, h("p", {}, "Loading…"));
  const element = h("div", {}, h("h2", { class: "hidden" }, "Activity"), filterBar(search.field, chips), plot, list);

  function draw() {
    if (!entries) return;
    const { query } = route();
    search.update();
    const words = wordsOf(query);
    const topics = (query.get("topic") ?? "").split(",").filter((topic) => Object.hasOwn(TOPICS, topic));
    const found = entries.filter((entry) => fits(entry, words));
    const shown = topics.length > 0 ? found.filter((entry) => topics.includes(entry.topic)) : found;
    const counts = count(found.map((entry) => entry.topic));
    redraw(chips, JSON.stringify([topics, [...counts]]), () => topicChips(topics, counts));
    const key = JSON.stringify([location.hash, shown]);
    redraw(list, key, () => [timeline(shown, { hasSubject: true, empty: EMPTY })]);
    redraw(plot, `${Math.floor(Date.now() / 60000)} ${key}`, () => [histogram(shown, Date.now())]);
  }

  async function reload() {
    timer = 0;
    loadedAt = performance.now();
    try {
      entries = await load("activity");
      if (isOpen) draw();
    } catch (error) {
      if (isOpen && !entries) list.replaceChildren(failure(error));
    }
  }

  /** @param {Set<string> | null} changed */
  function update(changed) {
    draw();
    const isNew = changed === null || changed.size > 0 || !entries;
    if (timer || !isNew || (entries && !state.connection.connected)) return;
    timer = setTimeout(reload, Math.max(0, loadedAt + INTERVAL - performance.now()));
  }

  function close() {
    isOpen = false;
    clearTimeout(timer);
    search.close();
  }
  return { title: "Activity", element, update, close };
}
