// A rollout: its stages in order, how far each is, and when it may end.

import { duration, h, number, ornament, since } from "./dom.js";
import { SYMBOLS } from "./states.js";

/** @typedef {import("./store.js").Fleet} Fleet */
/** @typedef {import("./store.js").Stage} Stage */

/** Looks of stages, as those of clusters. @type {Record<string, string>} */
const LOOKS = { Complete: "Ready", Progressing: "Progressing", AwaitingApproval: "Degraded", Paused: "Degraded", RollingBack: "Failed", RolledBack: "Failed" };
/** States of a stage in words. @type {Record<string, string>} */
const WORDS = { AwaitingApproval: "Waits for approval", RollingBack: "Rolling back", RolledBack: "Rolled back" };

/** Symbols of states in which nothing goes on. @type {Record<string, string>} */
const MARKS = { Paused: "‖", AwaitingApproval: "…" };

/** @param {Stage} stage */
function look(stage) {
  return stage.failed > 0 && stage.state !== "Complete" ? "Failed" : LOOKS[stage.state] ?? "Pending";
}

/** Clusters of a stage that may still be updated. @param {Stage} stage */
function open(stage) {
  return Math.max(0, stage.total - stage.updated - stage.failed - stage.deferred);
}

/** @param {string | undefined} time */
function parse(time) {
  return Date.parse(time ?? "");
}

/**
 * Seconds until the end of the stage in progress and of those after it, at the rate of that stage,
 * or of those before while it has none. Null if no stage is in progress, or nothing was updated.
 * @param {Stage[]} stages
 * @param {number} now
 */
export function estimate(stages, now) {
  const current = stages.find((stage) => stage.state === "Progressing" && stage.startedAt);
  if (!current) return null;
  const started = current.updated > 0 ? [current] : stages.filter((stage) => stage.startedAt && stage.updated > 0);
  const seconds = started.reduce((sum, stage) => sum + ((stage.finishedAt ? parse(stage.finishedAt) : now) - parse(stage.startedAt)) / 1000, 0);
  const updated = started.reduce((sum, stage) => sum + stage.updated, 0);
  const left = stages.reduce((sum, stage) => sum + (stage.state === "Complete" ? 0 : open(stage)), 0);
  return updated > 0 && seconds > 0 && left > 0 ? (seconds / updated) * left : null;
}

/** @param {Stage} stage */
function time(stage) {
  const from = parse(stage.startedAt);
  if (Number.isNaN(from)) return "";
  if (stage.finishedAt) return `, took ${duration((parse(stage.finishedAt) - from) / 1000)}`;
  return h("span", {}, " for ", since(stage.startedAt));
}

/** How many of its clusters are updated. @param {Stage} stage */
function meter({ total, updated }) {
  const fill = h("span", {});
  fill.style.width = `${total > 0 ? (100 * updated) / total : 0}%`;
  return h("span", { class: "meter", "aria-hidden": "true" }, fill);
}

/** @param {Stage} stage */
function waits({ state, waitsFor, until }) {
  // Those that are Pending wait for it, and an approval is said already.
  if (["Pending", "AwaitingApproval"].includes(state) || !waitsFor) return null;
  const end = until && `, until ${new Date(until).toLocaleTimeString()} or earlier`;
  return h("p", { class: "dim" }, `Waits for ${waitsFor}`, end);
}

/** @param {Stage} stage */
function step(stage) {
  const name = look(stage);
  const counts = Object.entries({ failed: stage.failed, deferred: stage.deferred, updating: stage.updating });
  const others = counts.filter(([, count]) => count).map(([word, count]) => `, ${count} ${word}`);
  return h("li", { class: `step ${name}`, "aria-current": stage.state === "Progressing" && "step" },
    h("p", { class: "step-name" }, ornament(MARKS[stage.state] ?? SYMBOLS[name], `marker ${name}`), h("strong", {}, stage.name)),
    meter(stage),
    h("p", {}, h("span", { class: "numbers" }, `${number(stage.updated)} of ${number(stage.total)}`), ...others),
    h("p", { class: "dim" }, WORDS[stage.state] ?? stage.state, time(stage)),
    stage.approvedBy && h("p", { class: "dim" }, `Approved by ${stage.approvedBy}`),
    waits(stage));
}

/** The stages of a rollout. @param {Fleet} fleet */
export function stepper(fleet) {
  if (fleet.stages.length === 0) return null;
  return h("ol", { class: "stepper", "aria-label": `Stages of ${fleet.namespace}/${fleet.name}` }, fleet.stages.map(step));
}

/** When the rollout may end. @param {Fleet} fleet */
export function eta(fleet) {
  const seconds = fleet.paused ? null : estimate(fleet.stages, Date.now());
  if (seconds === null) return null;
  const approvals = fleet.stages.some((stage) => stage.state === "AwaitingApproval") ? ", plus the time until approvals" : "";
  return h("span", { class: "eta" }, `about ${duration(seconds)} left at this rate${approvals}`);
}
