// @ts-check
/// <reference lib="dom" />
/// <reference lib="dom.iterable" />
import { CodeView } from "./code_view.js";
import { h } from "./dom.js";
import { formulaView } from "./formula_view.js";
import { parseMarkdown } from "./markdown.js";

/**
 * @typedef {import("./inline.js").Inline} Inline
 * @typedef {import("./markdown.js").Block} Block
 */

/**
 * Shows a growing text as blocks. Unchanged blocks keep their elements, so that selections and scroll positions stay;
 * growing code also keeps its own.
 */
export class GrowingText {
  /** The source of each child of the element, and its view if it is code. */
  #shown = /** @type {{ source: string, code?: CodeView }[]} */ ([]);

  constructor() {
    this.element = h("div", { class: "text" });
  }

  /** @param {string} text */
  show(text) {
    const blocks = parseMarkdown(text);
    const { children } = this.element;
    blocks.forEach(({ source, block }, i) => {
      const shown = this.#shown[i];
      if (shown?.source === source) return;
      if (block.type === "code" && shown?.code?.language === block.language) {
        shown.source = source;
        return shown.code.show(block.text);
      }
      const code = block.type === "code" ? new CodeView(block.language, block.text) : undefined;
      const made = code?.element ?? renderBlock(block);
      if (children[i]) children[i].replaceWith(made);
      else this.element.append(made);
      this.#shown[i] = { source, code };
    });
    while (children.length > blocks.length) children[children.length - 1].remove();
    this.#shown.length = blocks.length;
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
      return new CodeView(block.language, block.text).element;
    case "math":
      return h("div", {}, formulaView(block.tex, true));
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
    case "math":
      return formulaView(node.tex, node.display);
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
