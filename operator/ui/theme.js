// Light, dark, or as the system.

import { h } from "./dom.js";

const KEY = "theme";
const THEMES = ["system", "light", "dark"];
const SYMBOLS = ["◐", "☀", "☾"];

function stored() {
  const value = localStorage.getItem(KEY) ?? "";
  return THEMES.includes(value) ? value : THEMES[0];
}

/** @param {string} theme */
function use(theme) {
  document.documentElement.dataset.theme = theme;
}

/** The button that goes to the next theme. */
export function themeButton() {
  const symbol = h("span", { "aria-hidden": "true" });
  const name = h("span", { class: "hidden" });
  const show = () => {
    const at = THEMES.indexOf(stored());
    symbol.textContent = SYMBOLS[at];
    name.textContent = `Theme: ${THEMES[at]}`;
    button.title = `Theme: ${THEMES[at]}`;
  };
  const button = h("button", { type: "button", class: "theme", onclick: () => {
    localStorage.setItem(KEY, THEMES[(THEMES.indexOf(stored()) + 1) % THEMES.length]);
    use(stored());
    show();
  } }, symbol, name);
  show();
  return button;
}

use(stored());
