import { assert, assertEquals } from "@std/assert";
import { parseInline } from "./inline.js";
import { type Block, parseMarkdown } from "./markdown.js";

const blocks = (text: string): Block[] => parseMarkdown(text).map(({ block }) => block);
const text = (text: string) => ({ type: "text" as const, text });

Deno.test("markdown: parses headings, paragraphs, rules, code and quotes", () => {
  assertEquals(blocks("# Title\n\nOne\ntwo\n\n---\n```ts\nlet a;\n\n# b\n```\n> said\n> so"), [
    { type: "heading", level: 1, children: [text("Title")] },
    { type: "paragraph", children: [text("One"), { type: "break" }, text("two")] },
    { type: "rule" },
    { type: "code", language: "ts", text: "let a;\n\n# b" },
    {
      type: "quote",
      blocks: [{ type: "paragraph", children: [text("said"), { type: "break" }, text("so")] }],
    },
  ]);
});

Deno.test("markdown: lists nest, continue after an empty line, and keep their first number", () => {
  const item = (words: string): Block => ({ type: "paragraph", children: [text(words)] });
  assertEquals(blocks("3. three\n  - a\n  - b\n\n4. four\n\nafter"), [
    {
      type: "list",
      start: 3,
      items: [[item("three"), { type: "list", start: null, items: [[item("a")], [item("b")]] }], [
        item("four"),
      ]],
    },
    item("after"),
  ]);
  assertEquals(blocks("- code:\n\n  ```\n  x\n    y\n  ```"), [
    { type: "list", start: null, items: [[item("code:"), { type: "code", language: "", text: "x\n  y" }]] },
  ]);
});

Deno.test("markdown: a table needs a line of dashes with the same number of cells", () => {
  assertEquals(blocks("a | b\n--- | --:\n1 | 2 | 3\n4 |"), [{
    type: "table",
    head: [[text("a")], [text("b")]],
    align: [null, "right"],
    rows: [[[text("1")], [text("2")]], [[text("4")], []]],
  }]);
  assertEquals(blocks("a | b\n---")[0].type, "paragraph");
});

Deno.test("markdown: unfinished code is code", () => {
  assertEquals(blocks("Look:\n```js\nlet a = `"), [
    { type: "paragraph", children: [text("Look:")] },
    { type: "code", language: "js", text: "let a = `" },
  ]);
});

Deno.test("markdown: parses marks within a paragraph", () => {
  assertEquals(parseInline("a **b *c*** `d*` ~~e~~ snake_case_name 2 * 3 * 4 \\*f\\*"), [
    text("a "),
    { type: "strong", children: [text("b "), { type: "em", children: [text("c")] }] },
    text(" "),
    { type: "code", text: "d*" },
    text(" "),
    { type: "del", children: [text("e")] },
    text(" snake_case_name 2 * 3 * 4 *f*"),
  ]);
  assertEquals(parseInline("``a ` b`` and `c"), [{ type: "code", text: "a ` b" }, text(" and `c")]);
});

Deno.test("markdown: links lead to web and mail addresses only", () => {
  const link = (href: string, words: string) => ({ type: "link" as const, href, children: [text(words)] });
  assertEquals(parseInline("[a](https://example.org/x_(y)) https://example.org/z."), [
    link("https://example.org/x_(y)", "a"),
    text(" "),
    link("https://example.org/z", "https://example.org/z"),
    text("."),
  ]);
  for (
    const address of [
      "javascript:alert(1)",
      "JaVaScRiPt:alert(1)",
      "data:text/html,x",
      "/v1/files",
      "file:///etc",
    ]
  ) {
    const found = JSON.stringify(parseInline(`[a](${address})`));
    assert(!found.includes('"link"'), found);
  }
  assertEquals(parseInline("![a picture](https://example.org/p.png)"), [
    link("https://example.org/p.png", "a picture"),
  ]);
});

Deno.test("markdown: HTML stays text", () => {
  assertEquals(blocks("<img src=x onerror=alert(1)>"), [
    { type: "paragraph", children: [text("<img src=x onerror=alert(1)>")] },
  ]);
});

Deno.test("markdown: a growing text changes only its last blocks", () => {
  const whole = "# A\n\npara\n\n- x\n- y\n\n```\ncode\n```\n\n$$\nx\n$$\n\nend **of** it";
  let before: string[] = [];
  for (let end = 1; end <= whole.length; end++) {
    const sources = parseMarkdown(whole.slice(0, end)).map(({ source }) => source);
    // All but the last two stay: a paragraph may become a table when its next line arrives.
    for (let i = 0; i < before.length - 2; i++) assertEquals(sources[i], before[i]);
    before = sources;
  }
  assertEquals(before, ["# A", "para", "- x\n- y", "```\ncode\n```", "$$\nx\n$$", "end **of** it"]);
});

Deno.test("markdown: parses formulas, and leaves money, commands and code alone", () => {
  const math = (tex: string, display = false) => ({ type: "math" as const, tex, display });
  assertEquals(parseInline("Let $a_1*b$ and \\(x\\), **so $c**d$** \\[ y \\] or $$z$$."), [
    text("Let "),
    math("a_1*b"),
    text(" and "),
    math("x"),
    text(", "),
    { type: "strong", children: [text("so "), math("c**d")] },
    text(" "),
    math("y", true),
    text(" or "),
    math("z", true),
    text("."),
  ]);
  for (
    const plain of [
      "$5 and $6",
      "US$5 or US$6",
      "$20-$30",
      "$PATH:$HOME",
      "a $ b $ c",
      "$$",
      "$$$$",
      "$x",
      "$a\\$",
    ]
  ) {
    assert(!JSON.stringify(parseInline(plain)).includes("math"), plain);
  }
  assertEquals(parseInline("`$x$` \\$x$"), [{ type: "code", text: "$x$" }, text(" $x$")]);
  assertEquals(parseInline("\\\\[2pt] \\(a"), [text("\\[2pt] (a")]);
});

Deno.test("markdown: a formula with lines of its own is a block, whatever its lines begin with", () => {
  const paragraph = (words: string) => ({ type: "paragraph" as const, children: [text(words)] });
  assertEquals(blocks("So:\n$$\na\n+ b\n- c\n> 0\n$$\nthen\n\\[ x \\].\n- y:\n  $$z$$"), [
    paragraph("So:"),
    { type: "math", tex: "a\n+ b\n- c\n> 0" },
    paragraph("then"),
    { type: "math", tex: "x" },
    { type: "list", start: null, items: [[paragraph("y:"), { type: "math", tex: "z" }]] },
  ]);
  // The formula is still being written, so its block stays open.
  assertEquals(blocks("$$\na\n- b"), [{ type: "code", language: "latex", text: "a\n- b" }]);
  assertEquals(blocks("$$ a\n\nb").map(({ type }) => type), ["paragraph", "paragraph"]);
  assertEquals(blocks("```\n$$x$$\n```"), [{ type: "code", language: "", text: "$$x$$" }]);
});

Deno.test("markdown: hostile texts take linear time", () => {
  const hostile = [
    "*",
    "**a ",
    "_",
    "[",
    "[a](",
    "`",
    "``",
    "> ",
    "- ",
    "  - ",
    "~~",
    "|",
    '[a](b "',
    "\\",
    "*_",
    "**`",
    "https://",
    "![",
    "1. ",
    "#",
    "***a",
    "[[]",
    "$",
    "$a ",
    "$$",
    "$$ a",
    "\\[",
    "\\[\n\\] a",
    "\\(",
    "*$a",
  ];
  /** Maximum length of a paragraph that is parsed. */
  const most = 49_000;
  const whole = [`[](${" ".repeat(most)}x`, `http://${"!".repeat(most)}x`, "http://[".repeat(most / 8)];
  const blanks = " ".repeat(most);
  const lines = [
    `\`\`\`${blanks}\``,
    `${"~".repeat(most)}\``,
    `# a${blanks}b`,
    `#${blanks}\u2028`,
    `- ${blanks}\u2028`,
    `a|b\n-|-${blanks}x`,
  ];
  for (const piece of [...hostile, ...whole, ...lines]) {
    for (const joined of piece.length > 100 ? [piece] : [piece.repeat(20_000), `${piece}\n`.repeat(5_000)]) {
      const start = performance.now();
      parseMarkdown(joined);
      const ms = performance.now() - start;
      assert(
        ms < 1000,
        `${JSON.stringify(piece.slice(0, 20))} x ${joined.length} characters took ${ms.toFixed(0)} ms`,
      );
    }
  }
});

Deno.test("markdown: an address ends before punctuation, and an overlong one stays text", () => {
  const links = (text: string) => JSON.stringify(parseMarkdown(text)).match(/"href":"[^"]*"/g);
  assertEquals(
    links("See https://a.example/b?c=(d). [x](  https://e.example  ) [y](https://f.example 'no')"),
    [
      '"href":"https://a.example/b?c=(d"',
      '"href":"https://e.example/"',
      '"href":"https://f.example/"',
    ],
  );
  assertEquals(links(`https://a.example/${"b".repeat(2000)}`), null);
});

Deno.test("markdown: headings may have closing marks", () => {
  for (
    const [line, text] of [["# a", "a"], ["## a b ##  ", "a b"], ["#  a#", "a#"], ["### #", ""], ["#", ""]]
  ) {
    assertEquals(parseMarkdown(line).map(({ block }) => block), [
      { type: "heading", level: line.indexOf(" ") < 0 ? 1 : line.indexOf(" "), children: inline(text) },
    ]);
  }
});

const inline = (text: string) => text === "" ? [] : [{ type: "text" as const, text }];
