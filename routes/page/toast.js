// @ts-check
/// <reference lib="dom" />
import { announce, byId, h } from "./dom.js";

const SHOWN_MS = 8000;

/**
 * Shows a message for a while, with an optional button such as "Undo".
 * @param {string} text
 * @param {{ label: string, action: () => void }} [way]
 */
export function toast(text, way) {
  const element = h("div", { class: "toast" }, h("span", {}, text));
  const close = () => element.remove();
  if (way) {
    const act = () => {
      close();
      way.action();
    };
    element.append(h("button", { type: "button", onclick: act }, way.label));
  }
  byId("toasts", HTMLElement).replaceChildren(element);
  announce(text);
  setTimeout(close, SHOWN_MS);
}
