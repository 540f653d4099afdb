// @ts-check
/// <reference lib="dom" />
import { grammarOf, MAX_CODE } from "./code_tokens.js";
import { copyButton, fill, h } from "./dom.js";
import { typesetter } from "./typesetter.js";

/** Pause in milliseconds between two highlightings of code that grows. */
const PAUSE_MS = 150;

/** Shows a block of code, which may still be growing, and highlights it. */
export class CodeView {
  #text = "";
  #code = h("code");
  /** The tokens that are drawn, one node each; the last node is the text after them. @type {string[]} */
  #drawn = [];
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
    const added = text.startsWith(this.#text) ? text.slice(this.#text.length) : undefined;
    this.#text = text;
    const job = this.#job();
    const tokens = job && typesetter.known(job);
    if (tokens) return this.#draw(tokens, text);
    const last = this.#code.lastChild;
    if (added === undefined) {
      fill(this.#code, text);
      this.#drawn = [];
    } else if (last instanceof Text) last.appendData(added);
    else this.#code.append(added);
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
    // A growing list makes its code anew with each token; only the last one stays.
    const job = this.element.isConnected ? this.#job() : undefined;
    const tokens = job && await typesetter.typeset(job);
    this.#waits = false;
    if (!job) return;
    if (tokens && this.#text.startsWith(job.text)) this.#draw(tokens, job.text);
    if (tokens && this.#text !== job.text) this.#highlightSoon();
  }

  /**
   * Draws tokens, and the text after them as it is. Tokens that are drawn already keep their nodes.
   * @param {string[]} tokens
   * @param {string} highlighted the text of the tokens
   */
  #draw(tokens, highlighted) {
    let same = 0;
    while (
      same < tokens.length && this.#drawn[same] === tokens[same] && this.#drawn[same + 1] === tokens[same + 1]
    ) {
      same += 2;
    }
    while (this.#code.childNodes.length > same / 2) this.#code.lastChild?.remove();
    const parts = document.createDocumentFragment();
    for (let i = same; i < tokens.length; i += 2) {
      const [type, text] = [tokens[i], tokens[i + 1]];
      parts.append(type === "" ? text : h("span", { class: `token ${type}` }, text));
    }
    parts.append(this.#text.slice(highlighted.length));
    this.#code.append(parts);
    this.#drawn = tokens;
  }
}
