// A cluster: its components, what happened on it, and its objects.

import { componentCard, path } from "./component.js";
import { command } from "./copy.js";
import { h, since } from "./dom.js";
import { breadcrumb, live, onDemand } from "./live.js";
import { badge, shortName } from "./states.js";
import { address } from "./route.js";
import { load, state } from "./store.js";
import { timeline } from "./timeline.js";

/** @typedef {import("./store.js").Cluster} Cluster */
/** @typedef {import("./store.js").Component} Component */

/**
 * The identifier of a ClusterProfile, with nothing that has a meaning in a shell: the author of a
 * resource chose it. That of the hub itself has no namespace.
 */
const PROFILE = /^[a-z0-9][-a-z0-9.]*\/[a-z0-9][-a-z0-9.]*$/;

/** @param {Cluster} cluster */
function facts(cluster) {
  const { connection, server, providers, properties, fleet } = cluster;
  const words = { true: "connected", false: "not connected", null: "not known" };
  const connected = connection && words[/** @type {"true" | "false" | "null"} */ (String(connection.connected))];
  /** @type {[string, import("./dom.js").Child[]][]} */
  const all = [];
  if (connected) all.push(["Connection", [connected, " for ", since(connection.since)]]);
  if (server) all.push(["API server", [h("code", {}, server)]]);
  if (fleet) all.push(["Fleet", [h("a", { href: address(["clusters"], { fleet }), "data-key": "fleet" }, fleet)]]);
  if (providers?.length) all.push(["Credentials", [providers.join(", ")]]);
  if (properties) all.push(["Properties", [Object.entries(properties).map(([name, value]) => `${name}=${value}`).join(", ")]]);
  return all.length > 0 && h("dl", { class: "facts" }, all.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

/** How to check the way to the cluster, its version and permissions. @param {Cluster} cluster */
function preflight(cluster) {
  if (!PROFILE.test(cluster.id) || !["Unreachable", "Failed"].includes(cluster.state)) return null;
  const { namespace } = state.hub;
  return h("section", { class: "panel", "aria-labelledby": "preflight" }, h("h2", { id: "preflight" }, "Check this cluster"),
    h("p", {}, "Preflight checks the connection, versions, permissions, quotas and policies, with the credentials of the operator",
      namespace ? ":" : ", in whose namespace NAMESPACE it runs:"),
    command(`kubectl exec --namespace ${namespace || "NAMESPACE"} deploy/knative-operator -- /knative-operator preflight ${cluster.id}`));
}

/** @param {string} kind @param {any[]} all */
function objectGroup(kind, all) {
  const bad = all.filter(({ state }) => state !== "Ready").length;
  const items = all.map(({ state, namespace, name, message }) => h("li", {},
    badge(state), ` ${namespace ? `${namespace}/` : ""}${name}`, message && h("p", {}, message)));
  const summary = h("summary", {}, `${kind}: ${all.length}${bad ? `, ${bad} not ready` : ""}`);
  return h("details", { open: bad > 0 }, summary, h("ul", { class: "objects" }, items));
}

/** @param {Component} component */
function objects(component) {
  return onDemand(`Show the objects of ${component.kind}`, async () => {
    const kinds = Object.entries(await load(`objects/${path(component)}`));
    const groups = kinds.map(([kind, all]) => objectGroup(kind, all));
    return h("div", {}, groups.length ? groups : "The operator has not installed anything yet.");
  });
}

/**
 * @param {string} id
 * @returns {import("./main.js").View}
 */
export function clusterView(id) {
  const head = h("div", { class: "title" }, h("h2", {}, shortName(id)));
  const body = h("div", {}, h("p", {}, "Loading…"));
  const demand = h("section", { class: "panel", "aria-labelledby": "objects" }, h("h2", { id: "objects" }, "Objects"));
  demand.hidden = true;
  /** @type {Set<string>} */
  const known = new Set();

  /** @param {Cluster & {activity: import("./store.js").Activity[]}} cluster */
  const draw = (cluster) => {
    head.replaceChildren(h("h2", {}, shortName(id)), badge(cluster.state));
    for (const component of cluster.components) {
      if (known.has(path(component))) continue;
      known.add(path(component));
      demand.append(objects(component));
    }
    demand.hidden = known.size === 0;
    return [
      facts(cluster),
      cluster.components.length === 0 && h("p", { class: "none" }, "No resource refers to this cluster yet."),
      h("div", { class: "pair" }, cluster.components.map((component) => componentCard(id, component))),
      preflight(cluster),
      h("section", { class: "panel", "aria-labelledby": "happened" }, h("h2", { id: "happened" }, "Activity"),
        timeline(cluster.activity, { hasSubject: false, empty: "Nothing in the last hour." })),
    ];
  };
  const encoded = id.split("/").map(encodeURIComponent).join("/");
  const update = live(body, () => JSON.stringify(state.clusters[id] ?? null), () => load(`cluster/${encoded}`), draw);
  const fleet = state.clusters[id]?.fleet;
  /** @type {[string, string][]} */
  const steps = [["Hub", "#/"], ["Clusters", "#/clusters"]];
  if (fleet) steps.splice(1, 1, [fleet, address(["clusters"], { fleet })]);
  const element = h("div", {}, breadcrumb(steps, shortName(id)), head, body, demand);
  return { title: `Cluster ${id}`, element, update };
}
