// @ts-check

/* Highlighting of code: the languages, and the tokens of a text. */

/**
 * @typedef {any} Grammar
 * @typedef {(text: string, grammar: Grammar, onToken: (text: string, type?: string) => void) =>
 *   Generator<string, void, Grammar>} Tokenizer yields the names of grammars that it needs
 */

/** Maximum characters of a code block that is highlighted. */
export const MAX_CODE = 100_000;

/** The grammars that the server has. */
export const GRAMMARS =
  ("asm bash c css csv diff docker go html http ini java js jsdoc json lua make md pl py regex rs sql todo toml ts xml " +
    "yaml").split(" ");

/** Other names of languages, and languages that are close enough to one that has a grammar. */
const NAMES = new Map(
  Object.entries({
    bash: "sh shell zsh console shellsession fish",
    c: "cpp c++ cc h hpp cxx objc objective-c arduino cuda glsl zig",
    css: "scss sass less",
    diff: "patch",
    docker: "dockerfile",
    go: "golang",
    html: "htm vue svelte",
    ini: "conf properties env",
    java: "cs csharp c# kotlin kt scala dart groovy",
    js: "javascript jsx mjs cjs php",
    json: "jsonc json5 jsonl",
    make: "makefile",
    md: "markdown",
    pl: "perl",
    py: "python python3 pycon ruby rb",
    rs: "rust",
    ts: "typescript tsx swift",
    xml: "svg xhtml rss",
    yaml: "yml",
  }).flatMap(([grammar, names]) => names.split(" ").map((name) => [name, grammar])),
);

/**
 * Returns the name of a language's grammar, or undefined if there is none.
 * @param {string} language as a Markdown fence names it
 */
export function grammarOf(language) {
  const name = language.toLowerCase();
  const known = NAMES.get(name) ?? name;
  return GRAMMARS.includes(known) ? known : undefined;
}

/**
 * Returns types and texts of the tokens in turn; their texts together are the code. "" is the type of plain text.
 * @param {Tokenizer} tokenizer
 * @param {(grammar: string) => Promise<Grammar>} load
 * @param {string} grammar
 * @param {string} text
 * @returns {Promise<string[]>}
 */
export async function tokensOf(tokenizer, load, grammar, text) {
  /** @type {string[]} */
  const tokens = [];
  const add = (/** @type {string} */ part, type = "") => {
    if (part === "") return;
    if (tokens.at(-2) === type) tokens[tokens.length - 1] += part;
    else tokens.push(type, part);
  };
  const reader = tokenizer(text, grammar, add);
  let step = reader.next();
  while (!step.done) step = reader.next(GRAMMARS.includes(step.value) ? await load(step.value) : []);
  return tokens;
}

/** Browsers lay out a block of text anew when it grows, so code consists of blocks of this many lines. */
const CHUNK_LINES = 40;

/**
 * Returns tokens in chunks of whole lines.
 * @param {readonly string[]} tokens
 * @returns {string[][]}
 */
export function inChunks(tokens) {
  /** @type {string[]} */
  let chunk = [];
  const chunks = [chunk];
  let lines = 0;
  for (let i = 0; i < tokens.length; i += 2) {
    let start = 0;
    const text = tokens[i + 1];
    for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) {
      if (++lines < CHUNK_LINES) continue;
      chunk.push(tokens[i], text.slice(start, at + 1));
      chunks.push(chunk = []);
      [start, lines] = [at + 1, 0];
    }
    if (start < text.length) chunk.push(tokens[i], text.slice(start));
  }
  return chunks.filter(({ length }) => length > 0);
}
