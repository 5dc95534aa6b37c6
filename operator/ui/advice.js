// What to do about problems.

import { command } from "./copy.js";
import { h } from "./dom.js";

/** @typedef {import("./store.js").Advice} Advice */
/** @typedef {import("./store.js").Problem} Problem */

/** Programs whose commands people copy. */
const PROGRAMS = /^(kubectl|helm|knative-operator) /;

/**
 * A text in Markdown: code, links without their targets, and commands on lines of their own.
 * @param {string} text
 * @returns {Node[]}
 */
function parts(text) {
  /** @type {Node[]} */
  const nodes = [];
  let line = h("p", {});
  const end = () => {
    if (line.textContent?.trim()) nodes.push(line);
    line = h("p", {});
  };
  text.replace(/\[([^\]]*)\]\([^)]*\)/g, "$1").split("`").forEach((part, index) => {
    if (index % 2 === 0) line.append(line.textContent ? part : part.replace(/^[;,. ]+/, ""));
    else if (!PROGRAMS.test(part)) line.append(h("code", {}, part));
    else {
      end();
      nodes.push(command(part));
    }
  });
  end();
  return nodes;
}

/** What to do. @param {{text: string} | undefined} remedy */
export function advice(remedy) {
  if (!remedy) return null;
  return h("div", { class: "advice" }, h("strong", {}, "What to do"), ...parts(remedy.text));
}

/**
 * A message as a list, if it names workloads with what their Pods tell: "Waiting on deployments:
 * a (why), b (why)".
 * @param {string} message
 */
export function causes(message) {
  const [, intro, rest] = /^(Waiting on [a-z]+: )(.*)$/s.exec(message) ?? [];
  if (!rest) return h("p", { class: "message" }, message);
  /** @type {{name: string, why: string}[]} */
  const found = [];
  let [depth, name, why] = [0, "", ""];
  for (const character of `${rest},`) {
    if (character === "," && depth === 0) {
      if (name.trim()) found.push({ name: name.trim(), why });
      [name, why] = ["", ""];
      continue;
    }
    const before = depth;
    depth = Math.max(0, depth + Number(character === "(") - Number(character === ")"));
    if (before === 0 && depth === 0) name += character;
    else if (before > 0 && depth > 0) why += character;
  }
  // Texts of containers may have single parentheses: then nothing is lost.
  if (depth !== 0 || found.length === 0 || found.every((one) => !one.why)) return h("p", { class: "message" }, message);
  const items = found.map((one) => [h("dt", {}, one.name), h("dd", {}, one.why || "not available")]);
  return h("div", { class: "causes" }, h("p", { class: "message" }, intro), h("dl", {}, items.flat()));
}

/** What a cluster sent, without what a terminal obeys: it may be pasted into one. @param {string} text */
function inOneLine(text) {
  return text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+/gu, " ");
}

/**
 * Everything about a problem as text, to send to somebody.
 * @param {string} cluster
 * @param {import("./store.js").Component} component
 */
export function diagnosis(cluster, component) {
  const { kind, namespace, name, state, version, targetVersion, since, problem } = component;
  const versions = `${version ?? "none"}${targetVersion ? `, target ${targetVersion}` : ""}`;
  return [
    `${kind} ${namespace}/${name} on cluster ${cluster}`,
    `State: ${state} since ${since ?? "unknown"}; version: ${versions}`,
    problem && `${problem.condition} ${problem.reason}: ${inOneLine(problem.message)}`,
    problem?.remedy && `What to do: ${problem.remedy.text}`,
  ].filter(Boolean).join("\n");
}
