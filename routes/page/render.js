// @ts-check
/// <reference lib="dom" />
/// <reference lib="dom.iterable" />
import { copyButton, h } from "./dom.js";
import { parseMarkdown } from "./markdown.js";

/**
 * @typedef {import("./inline.js").Inline} Inline
 * @typedef {import("./markdown.js").Block} Block
 */

/**
 * Shows a growing text as blocks. Unchanged blocks keep their elements, so that selections and scroll positions stay.
 */
export class GrowingText {
  /** The source of each child of the element. */
  #sources = /** @type {string[]} */ ([]);

  constructor() {
    this.element = h("div", { class: "text" });
  }

  /** @param {string} text */
  show(text) {
    const blocks = parseMarkdown(text);
    const { children } = this.element;
    blocks.forEach(({ source, block }, i) => {
      if (this.#sources[i] === source) return;
      const made = renderBlock(block);
      if (children[i]) children[i].replaceWith(made);
      else this.element.append(made);
      this.#sources[i] = source;
    });
    while (children.length > blocks.length) children[children.length - 1].remove();
    this.#sources.length = blocks.length;
  }
}

/**
 * @param {Block} block
 * @returns {HTMLElement}
 */
function renderBlock(block) {
  switch (block.type) {
    case "paragraph":
      return h("p", {}, block.children.map(renderInline));
    case "heading":
      // The page itself uses the first heading level.
      return h(headingTag(block.level), { class: `level-${block.level}` }, block.children.map(renderInline));
    case "code":
      return renderCode(block.language, block.text);
    case "quote":
      return h("blockquote", {}, block.blocks.map(renderBlock));
    case "list": {
      const items = block.items.map((blocks) => h("li", {}, itemChildren(blocks)));
      return block.start === null ? h("ul", {}, items) : h("ol", { start: block.start }, items);
    }
    case "table":
      return renderTable(block);
    case "rule":
      return h("hr");
  }
}

/** @param {number} level */
function headingTag(level) {
  return /** @type {"h2" | "h3" | "h4" | "h5" | "h6"} */ (`h${Math.min(level + 1, 6)}`);
}

/**
 * Returns the content of a list item. Its first paragraph stays on the line of the bullet.
 * @param {Block[]} blocks
 * @returns {Node[]}
 */
function itemChildren(blocks) {
  const [first, ...others] = blocks;
  if (first?.type !== "paragraph") return blocks.map(renderBlock);
  return [...first.children.map(renderInline), ...others.map(renderBlock)];
}

/**
 * @param {string} language
 * @param {string} text
 */
export function renderCode(language, text) {
  const code = h("code", {}, text);
  const label = language === "" ? "Code" : `Code in ${language}`;
  return h(
    "figure",
    { class: "code" },
    h("figcaption", {}, h("span", {}, language || "code"), copyButton("Copy the code", () => text)),
    // The keyboard can scroll only focusable elements.
    h("pre", { tabindex: 0, role: "region", "aria-label": label }, code),
  );
}

/** @param {Extract<Block, { type: "table" }>} block */
function renderTable({ head, align, rows }) {
  const at = (/** @type {number} */ i) => ({ class: align[i] && `to-${align[i]}` });
  const table = h(
    "table",
    {},
    h("thead", {}, h("tr", {}, head.map((cell, i) => h("th", at(i), cell.map(renderInline))))),
    h(
      "tbody",
      {},
      rows.map((row) => h("tr", {}, row.map((cell, i) => h("td", at(i), cell.map(renderInline))))),
    ),
  );
  return h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Table" }, table);
}

/**
 * @param {Inline} node
 * @returns {Node}
 */
function renderInline(node) {
  switch (node.type) {
    case "text":
      return document.createTextNode(node.text);
    case "code":
      return h("code", {}, node.text);
    case "break":
      return h("br");
    case "link":
      return h(
        "a",
        { href: node.href, target: "_blank", rel: "noopener noreferrer nofollow" },
        node.children.map(renderInline),
      );
    case "strong":
    case "em":
    case "del":
      return h(node.type, {}, node.children.map(renderInline));
  }
}
