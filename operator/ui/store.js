// The state of the hub, live: server-sent events, fed from watches.

/**
 * @typedef {{text: string, canRecover: boolean}} Advice
 * @typedef {{condition: string, reason: string, message: string, until?: string, remedy?: Advice}} Problem
 * @typedef {{at: string, type: string, reason: string, message: string, count: number}} HubEvent
 * @typedef {{type: string, status: string, reason?: string, message?: string, lastTransitionTime?: string}} Condition
 * @typedef {{kind: string, namespace: string, name: string, state: string, version?: string, targetVersion?: string,
 *   since?: string, problem?: Problem, repairedAt?: string, changed?: string, conditions?: Condition[], events?: HubEvent[]}} Component
 * @typedef {{id: string, state: string, fleet?: string, server?: string, providers?: string[],
 *   connection?: {connected: boolean | null, since?: string}, components: Component[]}} Cluster
 * @typedef {{name: string, state: string, total: number, updated: number, updating: number, failed: number,
 *   deferred: number, startedAt?: string, finishedAt?: string, clusters: string[]}} Stage
 * @typedef {{namespace: string, name: string, ready: boolean, reason: string, message: string, remedy?: Advice,
 *   paused: boolean, currentRevision?: string, updateRevision?: string, stages: Stage[], conditions?: Condition[], events?: HubEvent[]}} Fleet
 * @typedef {{connected: boolean, since?: string, error?: string}} Connection
 * @typedef {{sequence: number, ready: boolean, clustersByState: Record<string, number>, fleets: Fleet[],
 *   clusters: Record<string, Cluster>, notes: string[], connection: Connection}} State
 */

/** @type {State} */
export const state = { sequence: 0, ready: true, clustersByState: {}, fleets: [], clusters: {}, notes: [], connection: { connected: true } };

/** @typedef {(changed: Set<string> | null) => void} Listener */
/** @type {Set<Listener>} */
const listeners = new Set();

/** Whether the first state has arrived. */
export let isLoaded = false;

/** Since when the server of this page does not answer. @type {string | null} */
export let serverLostAt = null;

/**
 * Calls `listener` after each update, with the identifiers of the clusters that changed, or null
 * for all.
 * @param {Listener} listener
 */
export function subscribe(listener) {
  listeners.add(listener);
}

/** @param {Set<string> | null} changed */
function notify(changed) {
  for (const listener of listeners) listener(changed);
}

/** Starts to follow the hub. */
export function follow() {
  const events = new EventSource("/api/events");
  events.addEventListener("state", (event) => {
    const message = JSON.parse(/** @type {MessageEvent} */ (event).data);
    Object.assign(state, message);
    isLoaded = true;
    serverLostAt = null;
    notify(null);
  });
  events.addEventListener("change", (event) => {
    const { clusters, ...message } = JSON.parse(/** @type {MessageEvent} */ (event).data);
    if (message.sequence <= state.sequence) return;
    Object.assign(state, message);
    for (const [id, cluster] of Object.entries(clusters)) {
      if (cluster === null) delete state.clusters[id];
      else state.clusters[id] = /** @type {Cluster} */ (cluster);
    }
    notify(new Set(Object.keys(clusters)));
  });
  events.addEventListener("error", () => {
    serverLostAt ??= new Date().toISOString();
    notify(new Set());
  });
}

/**
 * Loads `path`; errors have the message of the server.
 * @param {string} path
 */
export async function load(path) {
  const response = await fetch(`/api/${path}`);
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error ?? response.statusText);
  return answer;
}
