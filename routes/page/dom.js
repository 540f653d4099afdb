// @ts-check
/// <reference lib="dom" />
/// <reference lib="dom.iterable" />

/**
 * @typedef {Node | string | null | undefined | false} Child
 * @typedef {Record<string, unknown>} Attributes
 */

/**
 * Creates an element. Attributes that begin with "on" are listeners; `true` sets an attribute, and `false`,
 * null and undefined omit it. Strings become text nodes: nothing is parsed as HTML.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Attributes} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  setAttributes(element, attributes);
  append(element, children);
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

/**
 * Creates an SVG element, like `h`.
 * @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Attributes} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {SVGElementTagNameMap[Tag]}
 */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  setAttributes(element, attributes);
  append(element, children);
  return element;
}

/**
 * @param {Element} element
 * @param {Attributes} attributes
 */
function setAttributes(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") {
      element.addEventListener(name.slice(2), /** @type {EventListener} */ (value));
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
}

/**
 * @param {Element} element
 * @param {(Child | Child[])[]} children
 */
function append(element, children) {
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
}

/**
 * Replaces the children of an element.
 * @param {Element} element
 * @param {...(Child | Child[])} children
 */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
}

/**
 * Replaces the children of an element, but leaves those alone that stay.
 * @param {Element} element
 * @param {readonly Element[]} children
 */
export function arrange(element, children) {
  const stay = new Set(children);
  for (const child of [...element.children]) if (!stay.has(child)) child.remove();
  children.forEach((child, i) => {
    if (element.children[i] !== child) element.insertBefore(child, element.children[i] ?? null);
  });
}

/**
 * Returns the page's element with this id. Throws if it is missing or has another type.
 * @template {HTMLElement} T
 * @param {string} id
 * @param {new () => T} type
 * @returns {T}
 */
export function byId(id, type) {
  const element = document.getElementById(id);
  if (!(element instanceof type)) throw new Error(`The page has no ${type.name} with the id ${id}`);
  return element;
}

/** Paths of the icons, in a 20 by 20 view box. */
const ICONS = {
  send: "M10 16V4.500M5 9l5-5 5 5",
  stop: "M6 6h8v8H6z",
  plus: "M10 4v12M4 10h12",
  menu: "M3.500 6h13M3.500 10h13M3.500 14h13",
  close: "M5 5l10 10M15 5L5 15",
  copy: "M7.500 7.500h8v9h-8zM12.500 7.500v-4h-8v9h3",
  edit: "M4 16l.8-3.500L13 4.300l2.700 2.700-8.200 8.200L4 16zM11.300 6l2.700 2.700",
  again: "M15.500 7.500A6 6 0 1 0 16 10M16 4v3.800h-3.800",
  forward: "M4 5l5 5-5 5M10 5l5 5-5 5",
  back: "M12 5l-5 5 5 5",
  next: "M8 5l5 5-5 5",
  sliders: "M3.500 6.500h7M14.500 6.500h2M3.500 13.500h2M9.500 13.500h7M12.500 4.500v4M7.500 11.500v4",
  download: "M10 3.500V13M6 9.300l4 4 4-4M4 16.500h12",
  trash: "M4 6h12M8 6V4h4v2M5.500 6l.8 10.500h7.400L14.500 6M8.500 9v4.500M11.500 9v4.500",
  chat: "M3.500 4.500h13v9h-7l-3.500 3v-3h-2.500z",
  batch: "M4 5h12M4 10h12M4 15h7",
  chart: "M3.500 16.500h13M5.500 13.500v-4M10 13.500v-8M14.500 13.500v-6",
  image: "M3.500 4.500h13v11h-13zM3.500 13.500l4-4 3.500 3.500 2-2 3.500 3.500M12.500 8h.5",
  key: "M8.300 11.700a3.500 3.500 0 1 1 .1-.1L15 5M12.700 7.300l2 2",
  theme: "M10 3.500a6.500 6.500 0 1 0 0 13zM10 3.500a6.500 6.500 0 0 1 0 13",
};

/** @param {keyof typeof ICONS} name */
export function icon(name) {
  const path = svg("path", { d: ICONS[name], fill: name === "stop" ? "currentColor" : "none" });
  return svg("svg", { class: "icon", viewBox: "0 0 20 20", "aria-hidden": "true" }, path);
}

/**
 * Creates a button with an icon. Its label is read by screen readers and shown as a tooltip.
 * @param {keyof typeof ICONS} name
 * @param {string} label
 * @param {(event: MouseEvent) => void} onclick
 * @param {Attributes} [more]
 */
export function iconButton(name, label, onclick, more = {}) {
  const attributes = { type: "button", class: "quiet", "aria-label": label, title: label, onclick, ...more };
  return h("button", attributes, icon(name));
}

/**
 * Copies a text to the clipboard, also on pages from another machine without TLS. Returns false if the
 * browser refuses.
 * @param {string} text
 * @returns {Promise<boolean>}
 */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = h("textarea", { class: "unseen", "aria-hidden": "true" });
    area.value = text;
    const before = document.activeElement;
    document.body.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    if (before instanceof HTMLElement) before.focus();
    return copied;
  }
}

/**
 * Creates a button that copies a text and shows for a moment whether that worked.
 * @param {string} label
 * @param {() => string} text
 * @returns {HTMLButtonElement}
 */
export function copyButton(label, text) {
  const button = iconButton("copy", label, async () => {
    const done = await copyText(text());
    button.dataset.said = done ? "Copied" : "The browser refuses";
    setTimeout(() => delete button.dataset.said, 1500);
    announce(done ? "Copied" : "The browser does not let this page copy");
  });
  return button;
}

/**
 * Saves generated content as a file.
 * @param {string} name of the file
 * @param {Blob} blob
 */
export function saveBlob(name, blob) {
  const href = URL.createObjectURL(blob);
  h("a", { href, download: name }).click();
  // By then the browser has started to read the content.
  setTimeout(() => URL.revokeObjectURL(href), 60_000);
}

/**
 * Announces a text to screen readers, after earlier announcements.
 * @param {string} text
 */
export function announce(text) {
  const region = byId("announcements", HTMLElement);
  region.append(h("p", {}, text));
  while (region.childElementCount > 8) region.firstElementChild?.remove();
}
