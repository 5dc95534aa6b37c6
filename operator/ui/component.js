// A component on a cluster: its state, its problem, and its conditions.

import { advice, causes, diagnosis } from "./advice.js";
import { copyButton } from "./copy.js";
import { age, foldable, h, since } from "./dom.js";
import { badge, versionText } from "./states.js";
import { address } from "./route.js";
import { rowHead, scrolling, table } from "./table.js";

/** @typedef {import("./store.js").Component} Component */

/** The path of a resource in requests. @param {Component} component */
export function path({ kind, namespace, name }) {
  return [kind, namespace, name].map(encodeURIComponent).join("/");
}

/** @param {string | undefined} until */
function deadline(until) {
  if (!until) return null;
  const isAhead = Date.parse(until) > Date.now();
  return h("p", {}, isAhead ? `Kubernetes gives up at ${new Date(until).toLocaleTimeString()}.` : `Kubernetes gave up ${age(until)} ago.`);
}

/** The problem of a component, and what to do. @param {string} cluster @param {Component} component */
export function problem(cluster, component) {
  const found = component.problem;
  if (!found) return null;
  return h("div", { class: `problem ${component.state}` },
    h("h3", {}, found.reason || found.condition),
    causes(found.message), deadline(found.until), advice(found.remedy),
    copyButton(diagnosis(cluster, component), "Copy diagnosis"));
}

/** Conditions in one line that opens: the problem is said already. @param {Component} component */
export function conditions(component) {
  const all = component.conditions ?? [];
  if (all.length === 0) return null;
  const isGood = (/** @type {import("./store.js").Condition} */ one) => (one.status === "True") !== (one.type === "Stalled");
  const good = all.filter(isGood).length;
  const rows = all.map((one) => h("tr", { class: isGood(one) ? "" : "bad" },
    rowHead(one.type), h("td", {}, one.status), h("td", {}, since(one.lastTransitionTime)),
    h("td", { class: "why" }, one.reason && h("strong", {}, one.reason, one.message && ": "), one.message ?? "")));
  const label = `Conditions of ${component.kind} ${component.namespace}/${component.name}`;
  const about = { name: "conditions", label, heads: ["Condition", "Status", "Since", "Why"] };
  return foldable(`conditions ${path(component)}`, `${good}/${all.length} conditions are fine`, scrolling(table(about, rows)));
}

/** @param {string} cluster @param {Component} component */
export function componentCard(cluster, component) {
  const { kind, namespace, name } = component;
  return h("section", { class: "panel component", "aria-label": `${kind} ${namespace}/${name}` },
    h("div", { class: "component-head" }, h("h2", {}, kind), badge(component.state)),
    h("p", { class: "component-version" }, h("code", {}, versionText(component)), h("span", { class: "dim" }, " for ", since(component.since))),
    problem(cluster, component),
    ...(component.notes ?? []).map((note) => h("p", {}, `Note: ${note}`)),
    conditions(component),
    h("p", {}, h("a", { href: address(["resource", kind, namespace, name]), "data-key": `resource ${path(component)}` }, `${namespace}/${name}: spec, events and differences`)));
}
