// A panel over the view, whose name is in the address as `show`.

import { h, ornament, redraw, spoken } from "./dom.js";
import { change, route } from "./route.js";

/** @typedef {import("./dom.js").Child} Child */

const title = h("h2", { id: "drawer-title" });
const body = h("div", { class: "drawer-body" });
const close = h("button", { type: "button", class: "close", onclick: () => dialog.close() }, ornament("✕"), spoken("Close"));
const dialog = /** @type {HTMLDialogElement} */ (h("dialog", { class: "drawer", "aria-labelledby": "drawer-title" },
  h("div", { class: "drawer-head" }, title, close), body));
/** What opened it: the focus returns there. */
let opener = "";

dialog.addEventListener("close", () => {
  // Drawn again since: the browser can't return the focus itself.
  const element = [...document.querySelectorAll("main [data-key]")].find((node) => node.getAttribute("data-key") === opener);
  // Another view has another address.
  if (route().query.has("show")) change({ show: null });
  if (element instanceof HTMLElement) element.focus();
});
dialog.addEventListener("click", (event) => {
  if (event.target === dialog) dialog.close(); // beside it
});

/** Closes it, if it is open. */
export function hideDrawer() {
  if (dialog.open) dialog.close();
}

/**
 * Shows the contents that the address names, or closes it.
 * @param {(name: string) => {title: string, key: string, draw: () => (Child | Child[])[]} | null} find
 */
export function updateDrawer(find) {
  const name = route().query.get("show");
  const found = name ? find(name) : null;
  if (!name) {
    hideDrawer();
    return;
  }
  title.textContent = found?.title ?? "Nothing to show";
  redraw(body, found?.key ?? "", found?.draw ?? (() => [h("p", {}, "This has ended since: no cluster is affected any more.")]));
  if (dialog.open) return;
  if (!dialog.isConnected) document.body.append(dialog);
  opener = (document.activeElement instanceof HTMLElement && document.activeElement.dataset.key) || "";
  dialog.showModal();
}
