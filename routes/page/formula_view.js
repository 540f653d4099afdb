// @ts-check
/// <reference lib="dom" />
import { h } from "./dom.js";
import { typesetter } from "./typesetter.js";

/** @typedef {import("./math_tree.js").MathTree} MathTree */

const MATHML = "http://www.w3.org/1998/Math/MathML";

/**
 * Shows a formula; its source until it is typeset, and where it is not valid.
 * @param {string} tex
 * @param {boolean} display
 */
export function formulaView(tex, display) {
  loadStyles();
  const job = /** @type {const} */ ({ kind: "math", text: tex, display });
  // The keyboard can scroll only focusable elements.
  const wide = display ? { tabindex: 0, role: "group", "aria-label": "Formula" } : {};
  const view = h("span", { class: display ? "formula wide" : "formula", ...wide }, h("code", {}, tex));
  const show = (/** @type {MathTree | undefined} */ tree) => tree && view.replaceChildren(elementOf(tree));
  const known = typesetter.known(job);
  if (known) show(known);
  else typesetter.typeset(job).then(show);
  return view;
}

/** @param {MathTree} tree */
function elementOf([tag, attributes, styles, children]) {
  const element = document.createElementNS(MATHML, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  // The page's policy forbids the attribute `style`.
  Object.assign(element.style, styles);
  element.append(...children.map((child) => typeof child === "string" ? child : elementOf(child)));
  return element;
}

let loaded = false;

function loadStyles() {
  if (loaded) return;
  loaded = true;
  document.head.append(h("link", { rel: "stylesheet", href: "page/temml.css" }));
}
