// The first view: problems, fleets with stages as lanes, and clusters without a fleet.

import { SYMBOLS, STATES, advice, badge, h, link, since } from "./dom.js";
import { state } from "./store.js";

/** @typedef {import("./store.js").Cluster} Cluster */
/** @typedef {import("./store.js").Fleet} Fleet */
/** @typedef {import("./store.js").Stage} Stage */

/** Clusters in a chunk, which the browser draws only while it is on the screen. */
const CHUNK = 60;
/** Clusters with the same problem that are listed. */
const MAX_LINKS = 5;

/** @param {Cluster} cluster */
function describe(cluster) {
  const parts = cluster.components.map((component) => {
    const target = component.targetVersion ? ` to ${component.targetVersion}` : "";
    const why = component.problem ? `, ${component.problem.reason || component.problem.condition}` : "";
    return `${component.kind} ${component.version ?? "not installed"}${target}, ${component.state}${why}`;
  });
  return `${cluster.id}: ${cluster.state}. ${parts.join("; ") || "no resource yet"}`;
}

/** A lane of clusters: one tab stop, arrow keys move. */
class Lane {
  /** @param {string} label */
  constructor(label) {
    this.element = h("div", { class: "lane", role: "group", "aria-label": label, onkeydown: (/** @type {KeyboardEvent} */ event) => this.move(event) });
    /** @type {Map<string, HTMLElement>} */
    this.cells = new Map();
    this.key = "";
  }

  /**
   * @param {string[]} ids
   * @param {Set<string> | null} changed
   * @param {(cluster: Cluster) => boolean} isShown
   */
  update(ids, changed, isShown) {
    const shown = ids.filter((id) => state.clusters[id] && isShown(state.clusters[id]));
    const key = shown.join(" ");
    if (key !== this.key) {
      this.key = key;
      this.cells.clear();
      const focused = document.activeElement?.getAttribute("data-id");
      const chunks = [];
      for (let start = 0; start < shown.length; start += CHUNK) {
        chunks.push(h("div", { class: "chunk" }, shown.slice(start, start + CHUNK).map((id) => this.cell(id))));
      }
      this.element.replaceChildren(...chunks);
      changed = null;
      const first = this.cells.get(focused ?? "") ?? this.cells.values().next().value;
      first?.setAttribute("tabindex", "0");
      if (focused) this.cells.get(focused)?.focus();
    }
    for (const id of changed ?? this.cells.keys()) {
      const cell = this.cells.get(id);
      const cluster = state.clusters[id];
      if (!cell || !cluster) continue;
      const label = describe(cluster);
      if (cell.title === label) continue;
      cell.className = `cell ${cluster.state}`;
      cell.title = label;
      cell.setAttribute("aria-label", label);
      cell.textContent = SYMBOLS[cluster.state];
    }
  }

  /** @param {string} id */
  cell(id) {
    const cell = h("a", { class: "cell", href: link("cluster", id), "data-id": id, tabindex: "-1" });
    this.cells.set(id, cell);
    return cell;
  }

  /** @param {KeyboardEvent} event */
  move(event) {
    const cells = [...this.cells.values()];
    const at = cells.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    if (at < 0) return;
    const top = cells[at].offsetTop;
    const columns = Math.max(1, cells.slice(at).findIndex((cell) => cell.offsetTop !== top));
    const steps = /** @type {Record<string, number>} */ ({
      ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at + columns, ArrowUp: at - columns, Home: 0, End: cells.length - 1,
    });
    if (!(event.key in steps)) return;
    event.preventDefault();
    const next = cells[Math.min(Math.max(steps[event.key], 0), cells.length - 1)];
    cells[at].setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    next.focus();
  }
}

/**
 * The time line of a rollout.
 * @param {Fleet} fleet
 */
function timeline(fleet) {
  const started = fleet.stages.filter((stage) => stage.startedAt);
  if (started.length === 0) return null;
  const begin = Math.min(...started.map((stage) => Date.parse(stage.startedAt ?? "")));
  const end = Math.max(...started.map((stage) => Date.parse(stage.finishedAt ?? new Date().toISOString())), begin + 1000);
  const rows = started.map((stage) => {
    const from = Date.parse(stage.startedAt ?? "");
    const to = Date.parse(stage.finishedAt ?? new Date().toISOString());
    const bar = h("span", { class: `bar ${stage.finishedAt ? "Ready" : stage.failed ? "Failed" : "Progressing"}` });
    bar.style.marginLeft = `${(100 * (from - begin)) / (end - begin)}%`;
    bar.style.width = `${Math.max(1, (100 * (to - from)) / (end - begin))}%`;
    const text = stage.finishedAt ? `${stage.state} after ${Math.round((to - from) / 1000)} s` : `${stage.state} since ${new Date(from).toLocaleTimeString()}`;
    return h("tr", {}, h("th", { scope: "row" }, stage.name), h("td", {}, new Date(from).toLocaleString()), h("td", {}, text), h("td", { class: "track", "aria-hidden": "true" }, bar));
  });
  const head = h("tr", {}, ...["Stage", "Start", "State", "Time"].map((text) => h("th", { scope: "col" }, text)));
  return h("details", { class: "timeline" }, h("summary", {}, "Time line of the rollout"), h("div", { class: "scroll" }, h("table", {}, h("thead", {}, head), h("tbody", {}, rows))));
}

/**
 * What the status of a fleet says about single clusters.
 * @param {Fleet} fleet
 */
function attentionOf(fleet) {
  const entries = fleet.attention ?? [];
  if (entries.length === 0) return null;
  const items = entries.map((entry) => h("li", {},
    h("a", { href: link("cluster", entry.cluster) }, entry.cluster), " ", h("strong", {}, entry.reason), `: ${entry.message}`, advice(entry.remedy)));
  return h("details", { class: "attention" }, h("summary", {}, `Clusters in status.attention: ${entries.length}`), h("ul", {}, items));
}

/**
 * Clusters that need attention, those with the same reason together.
 * @param {Cluster[]} clusters
 */
function problems(clusters) {
  const bad = clusters.filter((cluster) => ["Failed", "Unreachable", "Degraded"].includes(cluster.state));
  if (bad.length === 0) return null;
  /** @type {Map<string, Cluster[]>} */
  const groups = new Map();
  const worst = (/** @type {Cluster} */ cluster) => cluster.components.find((component) => component.state === cluster.state);
  bad.sort((a, b) => STATES.indexOf(a.state) - STATES.indexOf(b.state) || a.id.localeCompare(b.id));
  for (const cluster of bad) {
    const problem = worst(cluster)?.problem;
    const key = `${cluster.state} ${problem?.condition} ${problem?.reason} ${problem?.remedy?.general}`;
    groups.set(key, [...(groups.get(key) ?? []), cluster]);
  }
  const items = [...groups.values()].map((group) => {
    const component = worst(group[0]);
    const problem = component?.problem;
    const links = group.slice(0, MAX_LINKS).flatMap((cluster, index) => [index ? ", " : "", h("a", { href: link("cluster", cluster.id) }, cluster.id), " ", since(worst(cluster)?.since)]);
    const texts = new Set(group.map((cluster) => worst(cluster)?.problem?.remedy?.text));
    const remedy = problem?.remedy && { text: texts.size > 1 ? problem.remedy.general : problem.remedy.text };
    const more = group.length > MAX_LINKS ? ` and ${group.length - MAX_LINKS} more` : "";
    return h("li", {},
      badge(group[0].state), ` ${component?.kind ?? ""} on `, ...links, more,
      problem && h("p", {}, h("strong", {}, problem.reason || problem.condition), `: ${problem.message}`),
      advice(remedy));
  });
  return h("section", { class: "problems", "aria-labelledby": "problems" },
    h("h2", { id: "problems" }, `${bad.length} ${bad.length === 1 ? "cluster needs" : "clusters need"} attention`), h("ul", {}, items));
}

function empty() {
  return h("section", {},
    h("h2", {}, "Nothing is installed yet"),
    h("p", {}, "This hub has no KnativeServing, KnativeEventing or KnativeFleet. Install Knative Serving on this cluster:"),
    h("pre", { tabindex: "0" }, "kubectl create namespace knative-serving\nkubectl apply -f - <<EOF\napiVersion: operator.knative.dev/v1beta1\nkind: KnativeServing\nmetadata:\n  name: knative-serving\n  namespace: knative-serving\nspec:\n  ingress: {kourier: {enabled: true}}\n  config: {network: {ingress-class: kourier.ingress.networking.knative.dev}}\nEOF"),
    h("p", {}, "This page shows the progress. To install on other clusters, register ClusterProfiles, and set spec.clusterProfileRef."));
}

/** A fleet: its parts are kept, and updated. */
class FleetSection {
  /** @param {string} id */
  constructor(id) {
    this.head = h("div", {});
    this.stages = h("div", {});
    this.element = h("section", { class: "fleet", "aria-label": `KnativeFleet ${id}` }, this.head, this.stages);
    /** @type {Map<string, {head: HTMLElement, lane: Lane}>} */
    this.lanes = new Map();
    this.key = "";
  }

  /**
   * @param {Fleet} fleet
   * @param {Set<string> | null} changed
   * @param {(cluster: Cluster) => boolean} isShown
   */
  update(fleet, changed, isShown) {
    const { stages, ...rest } = fleet;
    const key = JSON.stringify([rest, stages.map(({ clusters, ...stage }) => stage)]);
    if (key !== this.key) {
      this.key = key;
      const open = [...this.head.querySelectorAll("details[open]")].map((details) => details.className);
      const parts = [advice(fleet.remedy), attentionOf(fleet), timeline(fleet)].filter((node) => node !== null).map((node) => /** @type {HTMLElement} */ (node));
      for (const part of parts) if (open.includes(part.className)) part.setAttribute("open", "");
      const stopped = fleet.paused || ["AwaitingApproval", "RolledBack"].includes(fleet.reason);
      const sign = fleet.ready ? "Ready" : fleet.stages.some((stage) => stage.failed) ? "Failed" : stopped ? "Degraded" : "Progressing";
      this.head.replaceChildren(
        h("h2", {}, `${fleet.namespace}/${fleet.name} `, h("span", { class: `badge ${sign}` }, h("span", { "aria-hidden": "true" }, `${stopped ? "‖" : SYMBOLS[sign]} `), fleet.reason || "Pending")),
        h("p", {}, fleet.message),
        ...parts);
      const names = stages.map((stage) => stage.name);
      if ([...this.lanes.keys()].join() !== names.join()) {
        this.lanes = new Map(names.map((name) => [name, { head: h("div", { class: "stage" }), lane: new Lane(`Clusters of stage ${name}`) }]));
        this.stages.replaceChildren(...[...this.lanes.values()].flatMap(({ head, lane }) => [head, lane.element]));
      }
      for (const stage of stages) this.lanes.get(stage.name)?.head.replaceChildren(...this.stage(stage));
    }
    for (const stage of stages) this.lanes.get(stage.name)?.lane.update(stage.clusters, changed, isShown);
  }

  /** @param {Stage} stage */
  stage(stage) {
    const counts = [["failed", stage.failed], ["deferred", stage.deferred], ["updating", stage.updating]];
    const text = counts.filter(([, count]) => count).map(([name, count]) => `, ${count} ${name}`).join("");
    return [
      h("h3", {}, `${stage.name} `, h("span", { class: "stage-state" }, stage.state)),
      h("progress", { max: Math.max(1, stage.total), value: stage.updated, "aria-label": `Updated clusters of stage ${stage.name}` }),
      h("span", {}, `${stage.updated} of ${stage.total} updated${text} `, stage.startedAt && !stage.finishedAt ? since(stage.startedAt) : ""),
    ];
  }
}

/** @returns {import("./main.js").View} */
export function fleetsView() {
  let wanted = "";
  /** @type {Set<string>} */
  const states = new Set();
  const search = h("input", { type: "search", placeholder: "Filter clusters", "aria-label": "Filter clusters by name", oninput: () => { wanted = /** @type {HTMLInputElement} */ (search).value; update(null); } });
  const chips = STATES.map((name) => h("button", { type: "button", class: `chip ${name}`, "aria-pressed": "false", onclick: (/** @type {Event} */ event) => {
    const button = /** @type {HTMLElement} */ (event.currentTarget);
    if (!states.delete(name)) states.add(name);
    button.setAttribute("aria-pressed", String(states.has(name)));
    update(null);
  } }, `${SYMBOLS[name]} ${name}`));
  const filters = h("div", { class: "filters", role: "group", "aria-label": "Filters" }, search, chips);
  const notes = h("div", { class: "notes" });
  const attention = h("div", {});
  const fleets = h("div", {});
  const rest = new Lane("Clusters without a fleet");
  const restHead = h("h2", {}, "Clusters without a fleet");
  const element = h("div", {}, notes, h("div", { class: "columns" }, attention, h("div", {}, filters, fleets, restHead, rest.element)));
  /** @type {Map<string, FleetSection>} */
  const sections = new Map();
  let attentionKey = "";

  /** @param {Cluster} cluster */
  const isShown = (cluster) => cluster.id.includes(wanted) && (states.size === 0 || states.has(cluster.state));

  /** @param {Set<string> | null} changed */
  function update(changed) {
    notes.replaceChildren(...state.notes.map((note) => h("p", { class: "note" }, `Cannot read ${note}`)));
    const clusters = Object.values(state.clusters);
    const isEmpty = clusters.length === 0 && state.fleets.length === 0;
    filters.hidden = isEmpty;
    const bad = clusters.filter((cluster) => ["Failed", "Unreachable", "Degraded"].includes(cluster.state));
    const key = JSON.stringify([isEmpty, bad]);
    if (key !== attentionKey) {
      attentionKey = key;
      const node = isEmpty ? empty() : problems(clusters);
      attention.replaceChildren(...(node ? [node] : []));
    }
    const ids = state.fleets.map((fleet) => `${fleet.namespace}/${fleet.name}`);
    if ([...sections.keys()].join() !== ids.join()) {
      for (const id of [...sections.keys()]) if (!ids.includes(id)) sections.delete(id);
      const kept = new Map(sections);
      sections.clear();
      for (const id of ids) sections.set(id, kept.get(id) ?? new FleetSection(id));
      fleets.replaceChildren(...[...sections.values()].map((section) => section.element));
    }
    const inStage = new Set(state.fleets.flatMap((fleet) => fleet.stages.flatMap((stage) => stage.clusters)));
    state.fleets.forEach((fleet) => sections.get(`${fleet.namespace}/${fleet.name}`)?.update(fleet, changed, isShown));
    const own = clusters.map((cluster) => cluster.id).filter((id) => !inStage.has(id)).sort();
    restHead.hidden = own.length === 0 || state.fleets.length === 0;
    rest.update(own, changed, isShown);
  }
  return { title: "Clusters", element, update };
}
