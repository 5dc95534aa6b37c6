// A cluster, and a resource.

import { advice, age, badge, h, link, since } from "./dom.js";
import { load, state } from "./store.js";

/** @typedef {import("./store.js").Component} Component */
/** @typedef {import("./store.js").HubEvent} HubEvent */

const WHAT = "What happened";

/**
 * @param {string} caption
 * @param {string[]} columns
 * @param {(string | Node | null)[][]} rows
 */
function table(caption, columns, rows) {
  const head = h("tr", {}, columns.map((text) => h("th", { scope: "col" }, text)));
  const body = rows.map((cells) => h("tr", {}, cells.map((cell) => h("td", {}, cell))));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", { "aria-label": caption }, h("thead", {}, head), h("tbody", {}, body)));
}

/** @param {Component} component */
function conditions(component) {
  const rows = (component.conditions ?? []).map((condition) => [
    condition.type, condition.status, since(condition.lastTransitionTime), condition.reason ?? "", condition.message ?? "",
  ]);
  return table(`Conditions of ${component.kind} ${component.namespace}/${component.name}`, ["Condition", "Status", "Since", "Reason", "Message"], rows);
}

/**
 * @param {string} caption
 * @param {HubEvent[]} events
 */
function eventTable(caption, events) {
  if (events.length === 0) return h("p", {}, `${caption}: none in the last hour.`);
  const rows = events.map((event) => [since(event.at, " ago"), event.type === "Warning" ? "⚠ Warning" : "Normal", event.reason, event.message, event.count > 1 ? `${event.count} times` : ""]);
  return table(caption, ["When", "Type", "Reason", WHAT, "Count"], rows);
}

/**
 * A button that loads something into the element below it.
 * @param {string} label
 * @param {() => Promise<Node>} run
 */
function onDemand(label, run) {
  const result = h("div", { "aria-live": "polite" });
  const button = h("button", { type: "button", onclick: async () => {
    button.setAttribute("disabled", "");
    result.replaceChildren(h("p", {}, "Loading…"));
    try {
      result.replaceChildren(await run());
    } catch (error) {
      result.replaceChildren(h("p", { class: "note" }, error instanceof Error ? error.message : String(error)));
    }
    button.removeAttribute("disabled");
  } }, label);
  return h("div", { class: "demand" }, button, result);
}

/** @param {Component} component */
function path(component) {
  return [component.kind, component.namespace, component.name].map(encodeURIComponent).join("/");
}

/** @param {Component} component */
function objects(component) {
  return onDemand(`Show the objects of ${component.kind}`, async () => {
    const kinds = Object.entries(await load(`objects/${path(component)}`));
    const groups = kinds.map(([kind, all]) => {
      const bad = all.filter((/** @type {any} */ object) => object.state !== "Ready").length;
      const items = all.map((/** @type {any} */ object) => h("li", {}, badge(object.state), ` ${object.namespace ? `${object.namespace}/` : ""}${object.name}`, object.message && h("p", {}, object.message)));
      const summary = h("summary", {}, `${kind}: ${all.length}${bad ? `, ${bad} not ready` : ""}`);
      return h("details", { open: bad > 0 }, summary, h("ul", {}, items));
    });
    return h("div", {}, groups.length ? groups : "The operator has not installed anything yet.");
  });
}

/** @param {Component} component */
function headline(component) {
  const target = component.targetVersion ? ` → ${component.targetVersion}` : "";
  return [
    h("p", {}, badge(component.state), ` for `, since(component.since), `, version ${component.version ?? "(none yet)"}${target}`),
    component.problem && h("div", { class: "problem" },
      h("p", {}, h("strong", {}, component.problem.reason || component.problem.condition), `: ${component.problem.message}`),
      component.problem.until && h("p", {}, Date.parse(component.problem.until) > Date.now() ? `Kubernetes gives up at ${new Date(component.problem.until).toLocaleTimeString()}.` : `Kubernetes gave up ${age(component.problem.until)} ago.`),
      advice(component.problem.remedy)),
    ...(component.notes ?? []).map((note) => h("p", {}, `Note: ${note}`)),
  ];
}

/**
 * Keeps a view up to date: `body` is drawn again when `load` answers.
 * @param {string} title
 * @param {HTMLElement} element
 * @param {(answer: any) => (Node | string | null | undefined | false)[]} draw
 * @param {() => Promise<any>} fetch
 * @param {() => string} key what the view depends on
 * @returns {import("./main.js").View}
 */
function liveView(title, element, draw, fetch, key) {
  let drawn = "";
  let isLoading = false;
  async function update() {
    const now = key();
    if (isLoading || now === drawn) return;
    isLoading = true;
    try {
      const answer = await fetch();
      drawn = now;
      const nodes = draw(answer).filter((node) => node !== null && node !== undefined && node !== false);
      element.replaceChildren(...nodes.map((node) => /** @type {Node | string} */ (node)));
    } catch (error) {
      element.replaceChildren(h("p", { class: "note" }, error instanceof Error ? error.message : String(error)), h("p", {}, h("a", { href: "#/" }, "All clusters")));
      drawn = now;
    }
    isLoading = false;
    if (key() !== drawn) update();
  }
  return { title, element, update };
}

/**
 * @param {string} id
 * @returns {import("./main.js").View}
 */
export function clusterView(id) {
  const live = h("div", {}, h("p", {}, "Loading…"));
  const demand = h("div", {});
  /** @type {Set<string>} */
  const known = new Set();
  /** @param {any} cluster */
  const draw = (cluster) => {
    const connection = cluster.connection;
    const connected = connection && { true: "connected", false: "not connected" }[String(connection.connected)];
    for (const component of cluster.components) {
      if (known.has(path(component))) continue;
      known.add(path(component));
      demand.append(objects(component));
    }
    const events = cluster.components.flatMap((/** @type {Component} */ component) => (component.events ?? []).map((event) => ({ ...event, kind: component.kind })));
    events.sort((/** @type {HubEvent} */ a, /** @type {HubEvent} */ b) => b.at.localeCompare(a.at));
    const repairs = events.filter((/** @type {HubEvent} */ event) => ["DriftRepaired", "DriftFight"].includes(event.reason));
    return [
      h("dl", {},
        cluster.fleet && [h("dt", {}, "Fleet"), h("dd", {}, cluster.fleet)],
        cluster.server && [h("dt", {}, "API server"), h("dd", {}, cluster.server)],
        cluster.providers?.length && [h("dt", {}, "Credentials"), h("dd", {}, cluster.providers.join(", "))],
        cluster.properties && [h("dt", {}, "Properties"), h("dd", {}, Object.entries(cluster.properties).map(([name, value]) => `${name}=${value}`).join(", "))],
        connected && [h("dt", {}, "Connection"), h("dd", {}, connected, " for ", since(connection.since))]),
      cluster.components.length === 0 && h("p", {}, "No resource refers to this cluster yet."),
      ...cluster.components.flatMap((/** @type {Component} */ component) => [
        h("h3", {}, `${component.kind} `, h("a", { href: link("resource", `${component.kind}/${component.namespace}/${component.name}`) }, `${component.namespace}/${component.name}`)),
        ...headline(component),
        conditions(component),
      ]),
      h("h3", {}, "Repaired drift"),
      eventTable("Repaired drift", repairs),
      h("h3", {}, "Events"),
      eventTable("Events", events),
    ];
  };
  const element = h("div", {}, h("p", {}, h("a", { href: "#/" }, "All clusters")), h("h2", {}, `Cluster ${id}`), live, h("h3", {}, "Objects"), demand);
  const view = liveView(`Cluster ${id}`, live, draw, () => load(`cluster/${id.split("/").map(encodeURIComponent).join("/")}`), () => JSON.stringify(state.clusters[id] ?? null));
  return { ...view, element };
}

/**
 * A unified diff, with marked lines.
 * @param {string} text
 */
function diff(text) {
  const lines = text.split("\n").map((line) => {
    const kind = line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : "";
    return h("span", { class: kind }, `${line}\n`);
  });
  return h("pre", { tabindex: "0", class: "diff" }, lines);
}

/** @param {string[]} warnings */
function warnings(warnings) {
  return warnings.map((warning) => h("p", { class: "note" }, warning));
}

/**
 * @param {string} name
 * @returns {import("./main.js").View}
 */
export function resourceView(name) {
  const [kind, namespace, short] = name.split("/");
  const url = [kind, namespace, short].map((part) => encodeURIComponent(part ?? "")).join("/");
  const live = h("div", {}, h("p", {}, "Loading…"));
  const find = () => Object.values(state.clusters).flatMap((cluster) => cluster.components).find((one) => one.kind === kind && one.namespace === namespace && one.name === short);
  /** @param {any} answer */
  const draw = (answer) => [
    h("p", {}, "On cluster ", h("a", { href: link("cluster", answer.cluster) }, answer.cluster)),
    ...(answer.component ? headline(answer.component) : []),
    h("h3", {}, "Spec"),
    h("pre", { tabindex: "0" }, answer.spec),
    ...(answer.component ? [conditions(answer.component), eventTable("Events", answer.component.events ?? [])] : []),
  ];
  const rendered = onDemand("Show what it renders to", async () => {
    const answer = await load(`rendered/${url}`);
    const items = answer.objects.map((/** @type {any} */ object) => h("details", {}, h("summary", {}, `${object.kind} ${object.namespace ? `${object.namespace}/` : ""}${object.name}`), h("pre", { tabindex: "0" }, object.yaml)));
    return h("div", {}, warnings(answer.warnings), h("p", {}, `${answer.objects.length} objects`), items);
  });
  const compared = onDemand("Compare with the cluster", async () => {
    const answer = await load(`diff/${url}`);
    return h("div", {}, warnings(answer.warnings), h("p", {}, answer.summary), answer.text ? diff(answer.text) : null);
  });
  const element = h("div", {}, h("p", {}, h("a", { href: "#/" }, "All clusters")), h("h2", {}, `${kind} ${namespace}/${short}`), live, rendered, compared);
  const view = liveView(name, live, draw, () => load(`resource/${url}`), () => JSON.stringify(find() ?? null));
  return { ...view, element };
}
