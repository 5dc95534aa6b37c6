// The session: the browser exchanges the token in its address once, and sends what it gets with
// each request. It is in the storage of this origin, which no server on another port can read.

const KEY = "session";

/** The token, until it is exchanged. */
let token = new URLSearchParams(location.search).get("token");

/** Exchanges the token, if there is one. A browser with a session keeps it if the token was used. */
export async function begin() {
  if (token === null) return;
  const response = await fetch("/api/session", { method: "POST", headers: { authorization: `Bearer ${token}` } });
  token = null;
  history.replaceState(null, "", location.pathname + location.hash);
  if (response.ok) localStorage.setItem(KEY, await response.text());
}

/**
 * Requests `path` with the session.
 * @param {string} path
 */
export function request(path) {
  return fetch(`/api/${path}`, { headers: { authorization: `Bearer ${localStorage.getItem(KEY) ?? ""}` } });
}
