// Views whose contents the server has.

import { failure, h, redraw } from "./dom.js";

/**
 * Keeps a view up to date: `element` is drawn again when `fetch` answers.
 * @param {HTMLElement} element
 * @param {() => string} key what the view depends on
 * @param {() => Promise<any>} fetch
 * @param {(answer: any) => (import("./dom.js").Child | import("./dom.js").Child[])[]} draw
 * @returns {() => Promise<void>} updates it
 */
export function live(element, key, fetch, draw) {
  let drawn = "";
  let isLoading = false;
  return async function update() {
    const now = key();
    if (isLoading || now === drawn) return;
    isLoading = true;
    try {
      const answer = await fetch();
      redraw(element, JSON.stringify(answer), () => draw(answer));
    } catch (error) {
      redraw(element, `error ${error}`, () => [failure(error), h("p", {}, h("a", { href: "#/clusters" }, "All clusters"))]);
    }
    drawn = now;
    isLoading = false;
    if (key() !== drawn) update();
  };
}

/**
 * A button that loads something into the element below it.
 * @param {string} label
 * @param {() => Promise<Node>} run
 */
export function onDemand(label, run) {
  const result = h("div", { "aria-live": "polite" });
  const button = h("button", { type: "button", onclick: async () => {
    button.setAttribute("disabled", "");
    result.replaceChildren(h("p", {}, "Loading…"));
    try {
      result.replaceChildren(await run());
    } catch (error) {
      result.replaceChildren(failure(error));
    }
    button.removeAttribute("disabled");
  } }, label);
  return h("div", { class: "demand" }, button, result);
}

/**
 * The way back: from the hub to this view.
 * @param {[string, string][]} steps text and address
 * @param {string} here
 */
export function breadcrumb(steps, here) {
  return h("nav", { class: "breadcrumb", "aria-label": "Place" }, h("ol", {},
    steps.map(([text, href]) => h("li", {}, h("a", { href }, text))), h("li", { "aria-current": "page" }, here)));
}
