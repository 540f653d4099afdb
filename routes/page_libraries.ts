/**
 * Files of npm packages that the page loads when an answer has a formula or code. Temml writes MathML for the system's
 * fonts (a third of KaTeX's size); Speed Highlight gives tokens, not HTML, and is a fifteenth of highlight.js.
 */

/** A module that exports code as text: the server sends it and does not run it. */
type Text = Promise<{ readonly default: string }>;

/** Returns Temml's script as a module: it sets a global variable, but a worker needs a module. */
const temml = async () =>
  `${(await import("temml/dist/temml.min.js", { with: { type: "text" } })).default}\nexport default temml;\n`;

/** Returns Temml's styles without their font (script letters and primes), which a module cannot import. */
const temmlStyles = async () =>
  (await import("temml/dist/Temml-Local.css", { with: { type: "text" } })).default
    .replace(/@font-face\s*\{[^}]*\}/, "");

/** Grammars of code_tokens.js by language. A bundler finds only literal import paths, so each has its own line. */
const HIGHLIGHT: Readonly<Record<string, () => Text>> = {
  tokenize: () => import("@speed-highlight/core/tokenize", { with: { type: "text" } }),
  asm: () => import("@speed-highlight/core/languages/asm.js", { with: { type: "text" } }),
  bash: () => import("@speed-highlight/core/languages/bash.js", { with: { type: "text" } }),
  c: () => import("@speed-highlight/core/languages/c.js", { with: { type: "text" } }),
  css: () => import("@speed-highlight/core/languages/css.js", { with: { type: "text" } }),
  csv: () => import("@speed-highlight/core/languages/csv.js", { with: { type: "text" } }),
  diff: () => import("@speed-highlight/core/languages/diff.js", { with: { type: "text" } }),
  docker: () => import("@speed-highlight/core/languages/docker.js", { with: { type: "text" } }),
  go: () => import("@speed-highlight/core/languages/go.js", { with: { type: "text" } }),
  html: () => import("@speed-highlight/core/languages/html.js", { with: { type: "text" } }),
  http: () => import("@speed-highlight/core/languages/http.js", { with: { type: "text" } }),
  ini: () => import("@speed-highlight/core/languages/ini.js", { with: { type: "text" } }),
  java: () => import("@speed-highlight/core/languages/java.js", { with: { type: "text" } }),
  js: () => import("@speed-highlight/core/languages/js.js", { with: { type: "text" } }),
  jsdoc: () => import("@speed-highlight/core/languages/jsdoc.js", { with: { type: "text" } }),
  json: () => import("@speed-highlight/core/languages/json.js", { with: { type: "text" } }),
  lua: () => import("@speed-highlight/core/languages/lua.js", { with: { type: "text" } }),
  make: () => import("@speed-highlight/core/languages/make.js", { with: { type: "text" } }),
  md: () => import("@speed-highlight/core/languages/md.js", { with: { type: "text" } }),
  pl: () => import("@speed-highlight/core/languages/pl.js", { with: { type: "text" } }),
  py: () => import("@speed-highlight/core/languages/py.js", { with: { type: "text" } }),
  regex: () => import("@speed-highlight/core/languages/regex.js", { with: { type: "text" } }),
  rs: () => import("@speed-highlight/core/languages/rs.js", { with: { type: "text" } }),
  sql: () => import("@speed-highlight/core/languages/sql.js", { with: { type: "text" } }),
  todo: () => import("@speed-highlight/core/languages/todo.js", { with: { type: "text" } }),
  toml: () => import("@speed-highlight/core/languages/toml.js", { with: { type: "text" } }),
  ts: () => import("@speed-highlight/core/languages/ts.js", { with: { type: "text" } }),
  xml: () => import("@speed-highlight/core/languages/xml.js", { with: { type: "text" } }),
  yaml: () => import("@speed-highlight/core/languages/yaml.js", { with: { type: "text" } }),
};

/** Readers of the libraries' files, by path below `/page/`. */
export const LIBRARY_FILES: Readonly<Record<string, () => Promise<string>>> = {
  "temml.js": temml,
  "temml.css": temmlStyles,
  ...Object.fromEntries(
    Object.entries(HIGHLIGHT).map(([name, load]) => [
      `highlight/${name}.js`,
      async () => (await load()).default,
    ]),
  ),
};
