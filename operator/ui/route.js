// The address: a path, and what is filtered, sorted and open in the view.

/** @typedef {{path: string[], query: URLSearchParams}} Route */

/** @param {string} text */
function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // somebody typed it
  }
}

/** @returns {Route} */
export function route() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const parts = path.split("/").filter((part) => part !== "");
  return { path: parts.map(decode), query: new URLSearchParams(query ?? "") };
}

/**
 * The address of a view.
 * @param {string[]} path
 * @param {Record<string, string>} [query]
 */
export function address(path, query = {}) {
  // Commas and colons are readable, and have no meaning in a fragment.
  const text = new URLSearchParams(query).toString().replaceAll("%2C", ",").replaceAll("%3A", ":").replaceAll("%2F", "/");
  return `#/${path.map(encodeURIComponent).join("/")}${text && `?${text}`}`;
}

/**
 * The address of this view with other parameters; empty ones are left out.
 * @param {Record<string, string | null>} values
 */
export function withQuery(values) {
  const { path, query } = route();
  const all = { ...Object.fromEntries(query), ...values };
  const kept = Object.entries(all).filter((entry) => entry[1]);
  return address(path, /** @type {Record<string, string>} */ (Object.fromEntries(kept)));
}

/**
 * Goes to this view with other parameters. What people type replaces the entry in the history.
 * @param {Record<string, string | null>} values
 * @param {{isTyped?: boolean}} [how]
 */
export function change(values, { isTyped = false } = {}) {
  const target = withQuery(values);
  if (target === (location.hash || "#/")) return;
  if (!isTyped) {
    location.hash = target;
    return;
  }
  history.replaceState(null, "", location.pathname + target);
  dispatchEvent(new HashChangeEvent("hashchange"));
}

/** @param {string} id a cluster */
export function clusterAddress(id) {
  return address(["cluster", ...id.split("/")]);
}
