// A fleet: its rollout, and its clusters by stage.

import { advice } from "./advice.js";
import { h, ornament, plural, redraw, spoken } from "./dom.js";
import { Grid } from "./grid.js";
import { SYMBOLS, badge } from "./states.js";
import { eta, stepper } from "./stepper.js";
import { clusterAddress, withQuery } from "./route.js";
import { state } from "./store.js";
import { isAt } from "./target.js";

/** @typedef {import("./store.js").Fleet} Fleet */

/** @param {Fleet} fleet */
function fullName(fleet) {
  return `${fleet.namespace}/${fleet.name}`;
}

/**
 * From which version to which one each kind goes: the version that most of those clusters have
 * that don't have that of the fleet.
 * @param {Fleet} fleet
 */
function versions(fleet) {
  const ids = fleet.stages.flatMap((stage) => stage.clusters);
  const components = ids.flatMap((id) => state.clusters[id]?.components ?? []);
  return Object.entries(fleet.versions ?? {}).map(([kind, target]) => {
    /** @type {Map<string, number>} */
    const before = new Map();
    for (const { kind: own, version } of components) {
      if (own !== kind || !version || isAt(version, target)) continue;
      before.set(version, (before.get(version) ?? 0) + 1);
    }
    const [from] = [...before].sort((a, b) => b[1] - a[1])[0] ?? [];
    return { kind: kind.replace("Knative", ""), from, target };
  });
}

/** @param {Fleet} fleet */
function look(fleet) {
  if (fleet.ready) return "Ready";
  if (fleet.stages.some((stage) => stage.failed) || fleet.reason === "RolledBack") return "Failed";
  return fleet.paused || fleet.reason === "AwaitingApproval" ? "Degraded" : "Progressing";
}

/**
 * @param {Fleet} fleet
 * @param {ReturnType<typeof versions>} all
 */
function head(fleet, all) {
  const name = look(fleet);
  const isStopped = fleet.paused || fleet.reason === "AwaitingApproval";
  const sign = isStopped
    ? h("span", { class: `badge ${name}` }, ornament("‖", "symbol"), fleet.reason)
    : badge(name, fleet.reason || "Pending");
  const ways = all.map(({ kind, from, target }) => h("span", { class: "way" }, `${kind} `,
    from && h("span", {}, h("code", {}, from), ornament(" → "), spoken(" to ")), h("code", { class: "target" }, target)));
  const entries = fleet.attention ?? [];
  const more = entries.length > 0 && h("p", {}, h("a", { class: "more", href: withQuery({ show: `fleet:${fullName(fleet)}` }), "data-key": `attention ${fullName(fleet)}` },
    `${plural(entries.length, "cluster")} that the rollout reports`));
  return [
    h("div", { class: "fleet-head" }, h("h2", {}, h("span", { class: "dim" }, `${fleet.namespace}/`), fleet.name), sign),
    h("p", { class: "ways" }, ...ways, eta(fleet)),
    stepper(fleet),
    fleet.message && h("p", { class: "message" }, fleet.message),
    fleet.remedy && h("div", { class: "callout" }, advice(fleet.remedy)),
    more,
  ];
}

/** What the status of a fleet says about single clusters. @param {Fleet} fleet */
export function fleetDrawer(fleet) {
  const entries = fleet.attention ?? [];
  const draw = () => [h("ul", { class: "drawer-list" }, entries.map((entry) => h("li", {},
    h("p", {}, h("a", { href: clusterAddress(entry.cluster), "data-key": `drawer ${entry.cluster}` }, entry.cluster), " ", h("strong", {}, entry.reason)),
    h("p", { class: "message" }, entry.message), advice(entry.remedy))))];
  return { title: `${fullName(fleet)}: ${plural(entries.length, "cluster")}`, key: JSON.stringify(entries), draw };
}

/** A fleet: its parts are kept, and updated. */
export class FleetSection {
  /** @param {string} id */
  constructor(id) {
    this.head = h("div", {});
    this.stages = h("div", { class: "grids" });
    this.element = h("section", { class: "panel fleet", "aria-label": `KnativeFleet ${id}` }, this.head, this.stages);
    /** @type {Map<string, {head: HTMLElement, grid: Grid}>} */
    this.grids = new Map();
  }

  /**
   * @param {Fleet} fleet
   * @param {Set<string> | null} changed
   */
  update(fleet, changed) {
    const { stages, ...rest } = fleet;
    const all = versions(fleet);
    const key = JSON.stringify([rest, all, location.hash, stages.map(({ clusters, ...stage }) => stage)]);
    redraw(this.head, key, () => head(fleet, all));
    const names = stages.map((stage) => stage.name);
    if ([...this.grids.keys()].join() !== names.join()) {
      this.close();
      this.grids = new Map(names.map((name) => [name, { head: h("div", { class: "grid-head" }), grid: new Grid(`Clusters of stage ${name}`) }]));
      this.stages.replaceChildren(...[...this.grids.values()].flatMap(({ head, grid }) => [head, grid.element]));
    }
    for (const stage of stages) {
      const own = this.grids.get(stage.name);
      if (!own) continue;
      const bad = stage.clusters.filter((id) => ["Failed", "Unreachable", "Degraded"].includes(state.clusters[id]?.state)).length;
      redraw(own.head, `${stage.clusters.length} ${bad}`, () => [h("h3", {}, stage.name), h("span", { class: "dim" }, plural(stage.clusters.length, "cluster")),
        bad > 0 && h("span", { class: "grid-bad" }, ornament(`${SYMBOLS.Degraded} `), `${bad} not well`)]);
      own.grid.update(stage.clusters, changed);
    }
  }

  close() {
    for (const { grid } of this.grids.values()) grid.close();
  }
}
