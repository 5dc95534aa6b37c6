// The header: which hub this is, the tabs, and the connection.

import { h, number, redraw, since, spoken } from "./dom.js";
import { BAD } from "./states.js";
import { address, route } from "./route.js";
import { serverLostAt, state } from "./store.js";
import { themeButton } from "./theme.js";

const TABS = [["", "Overview"], ["clusters", "Clusters"], ["versions", "Versions"], ["activity", "Activity"]];
/** The tab of the views without one. */
const PARENTS = /** @type {Record<string, string>} */ ({ cluster: "clusters", resource: "clusters" });

/** The server as `knative-operator` names it: "https://… (context prod, ~/.kube/config)". */
function hub() {
  const { server, version } = state.hub;
  const [, url, origin] = /^(\S+) \((.*)\)$/.exec(server) ?? [null, server, ""];
  const context = /^context (.*), [^,]*$/.exec(origin)?.[1] ?? "";
  return [
    h("span", { class: "context", title: origin }, context || "Hub"),
    h("span", { class: "server", title: server }, url),
    version && h("span", { class: "version", title: "The version of knative-operator ui" }, `v${version}`),
  ];
}

/** @param {string} current */
function tabs(current) {
  const bad = BAD.reduce((sum, name) => sum + (state.clustersByState[name] ?? 0), 0);
  const total = Object.keys(state.clusters).length;
  return TABS.map(([path, name]) => {
    const count = path === "clusters" && total > 0 && h("span", { class: "tab-count" }, number(total));
    const alarm = path === "" && bad > 0 && h("span", { class: "tab-count Failed" }, number(bad), spoken(" need attention"));
    const href = address(path ? [path] : []);
    return h("a", { href, "data-key": `tab ${path}`, "aria-current": path === current ? "page" : null }, name, count, alarm);
  });
}

/** Fills `element`. @param {HTMLElement} element */
export function header(element) {
  const place = h("p", { class: "hub" });
  const nav = h("nav", { class: "tabs", "aria-label": "Views" });
  const connection = h("p", { class: "connection", role: "status" });
  const brand = h("h1", {}, h("a", { href: "#/" }, h("img", { src: "/icon.svg", alt: "", width: "22", height: "22" }), "Knative operator"));
  element.append(h("div", { class: "top-bar" }, brand, place, themeButton()), nav, connection);

  function update() {
    redraw(place, JSON.stringify(state.hub), hub);
    const [first = ""] = route().path;
    const current = PARENTS[first] ?? (TABS.some(([path]) => path === first) ? first : "");
    redraw(nav, `${current} ${JSON.stringify(state.clustersByState)}`, () => tabs(current));
    const { connected, since: lostAt, error } = state.connection;
    const lost = serverLostAt ?? (connected ? null : lostAt ?? null);
    const why = serverLostAt ? "knative-operator ui does not answer" : error ?? "";
    connection.classList.toggle("lost", Boolean(lost));
    redraw(connection, lost ? `${lost}${why}` : "", () => (lost
      ? [`Reconnecting since ${new Date(lost).toLocaleTimeString()} (`, since(lost), `): ${why}. The page shows the last known state.`]
      : []));
  }
  return { update };
}
