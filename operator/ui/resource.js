// A resource: its spec, its events, what it renders to, and how it differs from its cluster.

import { conditions, problem } from "./component.js";
import { copyButton } from "./copy.js";
import { h, since } from "./dom.js";
import { breadcrumb, live, onDemand } from "./live.js";
import { badge, shortName, versionText } from "./states.js";
import { clusterAddress } from "./route.js";
import { load, state } from "./store.js";
import { timeline } from "./timeline.js";

/** @typedef {import("./store.js").Component} Component */

/** A unified diff, with marked lines. @param {string} text */
function diff(text) {
  const lines = text.split("\n").map((line) => {
    const kind = line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : "";
    return h("span", { class: kind }, `${line}\n`);
  });
  return h("pre", { tabindex: "0", class: "diff" }, lines);
}

/** @param {string[]} all */
function warnings(all) {
  return all.map((warning) => h("p", { class: "note" }, warning));
}

/** @param {string} yaml */
function spec(yaml) {
  return h("section", { class: "panel", "aria-labelledby": "spec" },
    h("div", { class: "component-head" }, h("h2", { id: "spec" }, "Spec"), copyButton(yaml, "Copy", "the spec")), h("pre", { tabindex: "0" }, yaml));
}

/** @param {string} cluster @param {Component} component */
function headline(cluster, component) {
  const place = h("a", { href: clusterAddress(cluster), "data-key": "cluster" }, shortName(cluster));
  return h("p", {}, badge(component.state), " ", h("code", {}, versionText(component)), h("span", { class: "dim" }, " for ", since(component.since), " on "), place);
}

/** @param {Component} component */
function events({ events = [], kind, namespace, name }) {
  /** @param {import("./store.js").HubEvent} event */
  const topic = (event) => (event.reason.startsWith("Drift") ? "drift" : event.type === "Warning" ? "failure" : "other");
  const entries = events.map((event) => ({ ...event, topic: topic(event), kind, namespace, name }));
  return h("section", { class: "panel", "aria-labelledby": "events" }, h("h2", { id: "events" }, "Events"),
    timeline(entries, { hasSubject: false, empty: "None in the last hour." }));
}

/** @param {any} object */
function manifest({ kind, namespace, name, yaml }) {
  const summary = h("summary", {}, `${kind} ${namespace ? `${namespace}/` : ""}${name}`);
  return h("details", {}, summary, h("pre", { tabindex: "0" }, yaml));
}

/**
 * @param {string[]} name kind, namespace and name
 * @returns {import("./main.js").View}
 */
export function resourceView([kind = "", namespace = "", short = ""]) {
  const url = [kind, namespace, short].map(encodeURIComponent).join("/");
  const find = () => Object.values(state.clusters).find((cluster) => cluster.components.some((one) => one.kind === kind && one.namespace === namespace && one.name === short));
  const body = h("div", {}, h("p", {}, "Loading…"));

  /** @param {{cluster: string, spec: string, component?: import("./store.js").Component}} answer */
  const draw = ({ cluster, spec: yaml, component }) => [
    component && headline(cluster, component),
    component && problem(cluster, component),
    component && conditions(component),
    spec(yaml),
    component && events(component),
  ];

  const rendered = onDemand("Show what it renders to", async () => {
    const answer = await load(`rendered/${url}`);
    return h("div", {}, warnings(answer.warnings), h("p", {}, `${answer.objects.length} objects`), answer.objects.map(manifest));
  });
  const compared = onDemand("Compare with the cluster", async () => {
    const answer = await load(`diff/${url}`);
    return h("div", {}, warnings(answer.warnings), h("p", {}, answer.summary), answer.text ? diff(answer.text) : null);
  });
  const demand = h("section", { class: "panel", "aria-labelledby": "previews" }, h("h2", { id: "previews" }, "Objects"), rendered, compared);
  const update = live(body, () => JSON.stringify(find() ?? null), () => load(`resource/${url}`), draw);
  const id = find()?.id;
  /** @type {[string, string][]} */
  const steps = [["Hub", "#/"], ["Clusters", "#/clusters"]];
  if (id) steps.push([shortName(id), clusterAddress(id)]);
  const element = h("div", {}, breadcrumb(steps, `${namespace}/${short}`), h("div", { class: "title" }, h("h2", {}, `${kind} ${namespace}/${short}`)), body, demand);
  return { title: `${kind} ${namespace}/${short}`, element, update };
}
