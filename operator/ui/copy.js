// Text that can be copied.

import { h, spoken } from "./dom.js";

/** Time for which a button says that it copied, in milliseconds. */
const SHOWN = 2000;

/** @param {string} text */
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false; // the browser does not permit it
  }
}

/**
 * A button that copies `text`.
 * @param {string} text
 * @param {string} label
 * @param {string} [what] what it copies, for those who don't see where the button is
 */
export function copyButton(text, label, what = "") {
  const shown = h("span", { "aria-live": "polite" }, label);
  const button = h("button", { type: "button", class: "copy", "data-key": `copy ${label} ${text}`, onclick: async () => {
    shown.textContent = (await copy(text)) ? "Copied" : "Not permitted: select the text";
    setTimeout(() => { shown.textContent = label; }, SHOWN);
  } }, shown, what && spoken(` ${what}`));
  return button;
}

/** A command, with a button that copies it. @param {string} text */
export function command(text) {
  return h("div", { class: "command" }, h("code", {}, text), copyButton(text, "Copy", "the command"));
}
