// The state of the hub, live: server-sent events, fed from watches.

import { begin, request } from "./session.js";

/** Time after which a lost connection is opened again, in milliseconds. */
const RETRY = 1000;

/**
 * @typedef {{text: string, general: string, canRecover: boolean}} Advice
 * @typedef {{cluster: string, reason: string, message: string, remedy?: Advice}} Attention
 * @typedef {{condition: string, reason: string, message: string, until?: string, remedy?: Advice}} Problem
 * @typedef {{at: string, type: string, reason: string, message: string, count: number}} HubEvent
 * @typedef {{type: string, status: string, reason?: string, message?: string, lastTransitionTime?: string}} Condition
 * @typedef {{kind: string, namespace: string, name: string, state: string, version?: string, targetVersion?: string,
 *   since?: string, problem?: Problem, notes?: string[], repairedAt?: string, changed?: string, conditions?: Condition[], events?: HubEvent[]}} Component
 * @typedef {{id: string, state: string, fleet?: string, server?: string, providers?: string[],
 *   properties?: Record<string, string>, connection?: {connected: boolean | null, since?: string}, components: Component[]}} Cluster
 * @typedef {{name: string, state: string, total: number, updated: number, updating: number, failed: number,
 *   deferred: number, approvedBy?: string, waitsFor?: string, until?: string, startedAt?: string, finishedAt?: string,
 *   clusters: string[]}} Stage
 * @typedef {{topic: string, cluster?: string, kind: string, namespace: string, name: string} & HubEvent} Activity
 * @typedef {{namespace: string, name: string, ready: boolean, reason: string, message: string, remedy?: Advice,
 *   paused: boolean, currentRevision?: string, updateRevision?: string,
 *   versions?: Record<string, string>, stages: Stage[], attention?: Attention[], conditions?: Condition[], events?: HubEvent[]}} Fleet
 * @typedef {{connected: boolean, since?: string, error?: string}} Connection
 * @typedef {{sequence: number, ready: boolean, clustersByState: Record<string, number>, fleets: Fleet[],
 *   clusters: Record<string, Cluster>, notes: string[], hub: {server: string, version: string, namespace?: string | null}, connection: Connection}} State
 */

/** @type {State} */
export const state = { sequence: 0, ready: true, clustersByState: {}, fleets: [], clusters: {}, notes: [],
  hub: { server: "", version: "" }, connection: { connected: true } };

/** @typedef {(changed: Set<string> | null) => void} Listener */
/** @type {Set<Listener>} */
const listeners = new Set();

/** Whether the first state has arrived. */
export let isLoaded = false;

/** Since when the server of this page does not answer. @type {string | null} */
export let serverLostAt = null;

/** Why the server refuses this browser; empty if it doesn't. */
export let refusal = "";

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
  for (const listener of listeners) {
    try {
      listener(changed);
    } catch (error) {
      reportError(error); // the stream is not lost for it
    }
  }
}

/** @param {string} block one event of the stream: lines with the name of a field and its value */
function receive(block) {
  const field = (/** @type {string} */ name) => block.split("\n").find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
  const data = field("data");
  if (data === undefined) return;
  const message = JSON.parse(data);
  if (field("event") === "state") {
    Object.assign(state, message);
    isLoaded = true;
    serverLostAt = null;
    notify(null);
    return;
  }
  const { clusters, ...rest } = message;
  if (rest.sequence <= state.sequence) return;
  Object.assign(state, rest);
  for (const [id, cluster] of Object.entries(clusters)) {
    if (cluster === null) delete state.clusters[id];
    else state.clusters[id] = /** @type {Cluster} */ (cluster);
  }
  notify(new Set(Object.keys(clusters)));
}

/**
 * Receives events until the stream ends.
 * @param {ReadableStream<Uint8Array>} stream
 */
async function read(stream) {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + decoder.decode(value, { stream: true })).split("\n\n");
    rest = blocks.pop() ?? "";
    blocks.forEach(receive);
  }
}

/** Follows the hub: server-sent events, which EventSource can't request with the session. */
export async function follow() {
  for (;;) {
    try {
      await begin();
      const response = await request("events");
      if (!response.ok) {
        refusal = await response.text();
        serverLostAt = null;
        notify(null);
        return;
      }
      if (response.body) await read(response.body);
    } catch {
      // The server is gone, or the connection to it.
    }
    serverLostAt ??= new Date().toISOString();
    notify(new Set());
    await new Promise((resolve) => setTimeout(resolve, RETRY));
  }
}

/**
 * Loads `path`; errors have the message of the server.
 * @param {string} path
 */
export async function load(path) {
  const response = await request(path);
  if (response.ok) return response.json();
  const text = await response.text();
  const isJson = response.headers.get("content-type")?.startsWith("application/json");
  throw new Error(isJson ? JSON.parse(text).error : text);
}
