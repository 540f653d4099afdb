import { assertEquals } from "@std/assert";
import { tokenizer } from "@speed-highlight/core/tokenize";
import { LIBRARY_FILES } from "../page_libraries.ts";
import { grammarOf, GRAMMARS, inChunks, tokensOf } from "./code_tokens.js";

const load = async (name: string) =>
  (await import(
    `data:text/javascript,${encodeURIComponent(await LIBRARY_FILES[`highlight/${name}.js`]())}`
  ))
    .default;

const tokens = (language: string, text: string) => tokensOf(tokenizer, load, grammarOf(language)!, text);

Deno.test("code tokens: have types, and their texts are the code", async () => {
  assertEquals(await tokens("python", "def f(): # hi\n  return 'a'\n"), [
    ...["kwd", "def", "", " ", "func", "f", "", "(): ", "cmnt", "# hi", "", "\n  ", "kwd", "return"],
    ...["", " ", "str", "'a'", "", "\n"],
  ]);
  for (const grammar of GRAMMARS) {
    const text =
      `<a b="c">x</a> // y\n# z\n{"k": [1, true]} /* "unclosed\nfunction f(x) { return \`\${x}\`; }`;
    const found = await tokens(grammar, text);
    assertEquals(found.filter((_, i) => i % 2 === 1).join(""), text, grammar);
  }
});

Deno.test("code tokens: languages have several names, in any case; unknown ones have no grammar", () => {
  assertEquals(["Python", "py", "C++", "tsx", "zsh"].map(grammarOf), ["py", "py", "c", "ts", "bash"]);
  assertEquals(["", "latex", "__proto__", "../x"].map(grammarOf), [
    undefined,
    undefined,
    undefined,
    undefined,
  ]);
});

Deno.test("code tokens: code within Markdown may have any language", async () => {
  const text = "# a\n```nonsense\nx\n```\n```css\na { color: red }\n```\n";
  assertEquals((await tokens("md", text)).filter((_, i) => i % 2 === 1).join(""), text);
});

Deno.test("code tokens: the server has each grammar, and no other", () => {
  const files = Object.keys(LIBRARY_FILES).filter((name) => name.startsWith("highlight/"));
  assertEquals(files.sort(), ["tokenize", ...GRAMMARS].map((name) => `highlight/${name}.js`).sort());
});

Deno.test("code tokens: chunks have whole lines and all tokens", () => {
  assertEquals(inChunks([]), []);
  assertEquals(inChunks(["", "a\n", "kwd", "b"]), [["", "a\n", "kwd", "b"]]);
  const lines = "x\n".repeat(39);
  assertEquals(inChunks(["kwd", "y", "", `${lines}z\n`, "str", `${lines}\n\nend`]), [
    ["kwd", "y", "", `${lines}z\n`],
    ["str", `${lines}\n`],
    ["str", "\nend"],
  ]);
});
