// The first view: how well the hub is, its rollouts, what needs attention, and all clusters.

import { attention, attentionKey, groupDrawer, groups } from "./attention.js";
import { h, plural, redraw } from "./dom.js";
import { updateDrawer } from "./drawer.js";
import { emptyHub } from "./empty.js";
import { FleetSection, fleetDrawer } from "./fleet.js";
import { health, notes } from "./health.js";
import { Grid } from "./grid.js";
import { state } from "./store.js";

/** @returns {import("./main.js").View} */
export function overviewView() {
  const warnings = h("div", {});
  const summary = health();
  const problems = h("div", { class: "side" });
  const fleets = h("div", {});
  const restHead = h("h2", {});
  const rest = new Grid("Clusters without a fleet");
  const own = h("section", { class: "panel", "aria-label": "Clusters without a fleet" }, restHead, rest.element);
  const nothing = h("div", {});
  const columns = h("div", { class: "columns" }, h("div", { class: "wide" }, fleets, own), problems);
  const element = h("div", {}, warnings, nothing, summary.element, columns);
  /** @type {Map<string, FleetSection>} */
  const sections = new Map();

  /** @param {Set<string> | null} changed */
  function updateFleets(changed) {
    const ids = state.fleets.map((fleet) => `${fleet.namespace}/${fleet.name}`);
    if ([...sections.keys()].join() !== ids.join()) {
      for (const [id, section] of sections) if (!ids.includes(id)) section.close();
      const kept = new Map(sections);
      sections.clear();
      for (const id of ids) sections.set(id, kept.get(id) ?? new FleetSection(id));
      fleets.replaceChildren(...[...sections.values()].map((section) => section.element));
    }
    for (const fleet of state.fleets) sections.get(`${fleet.namespace}/${fleet.name}`)?.update(fleet, changed);
  }

  /** @param {Set<string> | null} changed */
  function update(changed) {
    redraw(warnings, JSON.stringify(state.notes), notes);
    const clusters = Object.keys(state.clusters);
    const isEmpty = clusters.length === 0 && state.fleets.length === 0;
    redraw(nothing, String(isEmpty), () => (isEmpty ? [emptyHub()] : []));
    summary.element.hidden = clusters.length === 0;
    columns.hidden = isEmpty;
    if (clusters.length > 0) summary.update();
    const all = groups();
    columns.classList.toggle("two", all.length > 0);
    redraw(problems, attentionKey(all), () => attention(all));
    updateFleets(changed);
    const inStage = new Set(state.fleets.flatMap((fleet) => fleet.stages.flatMap((stage) => stage.clusters)));
    const alone = clusters.filter((id) => !inStage.has(id));
    own.hidden = alone.length === 0;
    const text = state.fleets.length > 0 ? `${plural(alone.length, "cluster")} without a fleet` : plural(alone.length, "cluster");
    if (restHead.textContent !== text) restHead.textContent = text;
    rest.update(alone, changed);
    updateDrawer((name) => {
      const fleet = state.fleets.find((one) => name === `fleet:${one.namespace}/${one.name}`);
      if (fleet) return fleetDrawer(fleet);
      const group = all.find((one) => one.key === name);
      return group ? groupDrawer(group) : null;
    });
  }

  function close() {
    rest.close();
    for (const section of sections.values()) section.close();
  }
  return { title: "Overview", element, update, close };
}
