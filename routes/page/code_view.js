// @ts-check
/// <reference lib="dom" />
import { grammarOf, inChunks, MAX_CODE } from "./code_tokens.js";
import { copyButton, h } from "./dom.js";
import { typesetter } from "./typesetter.js";

/** Pause in milliseconds between two highlightings of code that grows. */
const PAUSE_MS = 150;

/** Shows a block of code, which may still be growing, and highlights it. */
export class CodeView {
  #text = "";
  #code = h("code");
  /** The chunks that are drawn, each with its element. @type {string[][]} */
  #drawn = [];
  /** The tokens of the text's beginning. @type {string[]} */
  #tokens = [];
  #highlighted = "";
  #waits = false;
  #grammar;

  /**
   * @param {string} language
   * @param {string} text
   */
  constructor(language, text) {
    this.language = language;
    this.#grammar = grammarOf(language);
    const label = language === "" ? "Code" : `Code in ${language}`;
    this.element = h(
      "figure",
      { class: "code" },
      h("figcaption", {}, h("span", {}, language || "code"), copyButton("Copy the code", () => this.#text)),
      // The keyboard can scroll only focusable elements.
      h("pre", { tabindex: 0, role: "region", "aria-label": label }, this.#code),
    );
    this.show(text);
  }

  /** @param {string} text */
  show(text) {
    this.#text = text;
    const job = this.#job();
    const tokens = job && typesetter.known(job);
    if (tokens) return this.#draw(tokens, text);
    this.#draw(text.startsWith(this.#highlighted) ? this.#tokens : [], this.#highlighted);
    if (job) this.#highlightSoon();
  }

  #job() {
    if (this.#grammar === undefined || this.#text === "" || this.#text.length > MAX_CODE) return undefined;
    return /** @type {const} */ ({ kind: "code", text: this.#text, grammar: this.#grammar });
  }

  async #highlightSoon() {
    if (this.#waits) return;
    this.#waits = true;
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    // A growing list creates its code views again with each token, and only the last of them stays in the page.
    const job = this.element.isConnected ? this.#job() : undefined;
    const tokens = job && await typesetter.typeset(job);
    this.#waits = false;
    if (!job) return;
    if (tokens && this.#text.startsWith(job.text)) this.#draw(tokens, job.text);
    if (tokens && this.#text !== job.text) this.#highlightSoon();
  }

  /**
   * Draws tokens, and the text after them as it is. Chunks that stay keep their nodes.
   * @param {string[]} tokens
   * @param {string} highlighted the text of the tokens
   */
  #draw(tokens, highlighted) {
    [this.#tokens, this.#highlighted] = tokens.length > 0 ? [tokens, highlighted] : [[], ""];
    const chunks = inChunks([...this.#tokens, "", this.#text.slice(this.#highlighted.length)]);
    const { children } = this.#code;
    chunks.forEach((chunk, i) => {
      const drawn = this.#drawn[i];
      if (drawn?.length === chunk.length && chunk.every((part, at) => part === drawn[at])) return;
      const made = h("span", { class: "lines" });
      for (let at = 0; at < chunk.length; at += 2) {
        const [type, text] = [chunk[at], chunk[at + 1]];
        made.append(type === "" ? text : h("span", { class: `token ${type}` }, text));
      }
      if (children[i]) children[i].replaceWith(made);
      else this.#code.append(made);
    });
    while (children.length > chunks.length) children[children.length - 1].remove();
    this.#drawn = chunks;
  }
}
