import { assert, assertEquals, assertThrows } from "@std/assert";
import temml from "temml/dist/temml.mjs";
import { type MathTree, mathTree, type Temml } from "./math_tree.js";

const tree = (tex: string, display = false) => mathTree(temml as unknown as Temml, tex, display);

/** Returns all elements of a tree. */
function elements(tree: MathTree): MathTree[] {
  return [tree, ...tree[3].flatMap((child) => typeof child === "string" ? [] : elements(child))];
}

Deno.test("math tree: has the elements and texts of a formula", () => {
  assertEquals(tree("\\frac{a}{2}"), [
    "math",
    {},
    {},
    [["mfrac", {}, {}, [["mi", {}, {}, ["a"]], ["mn", {}, {}, ["2"]]]]],
  ]);
  assertEquals(tree("x", true).slice(1, 3), [{ display: "block", class: "tml-display" }, {
    display: "block math",
  }]);
  const matrix =
    "\\begin{aligned} a &= \\begin{pmatrix}1&2\\\\3&4\\end{pmatrix} \\\\ b &= \\text{if $c$} \\end{aligned}";
  assertEquals(elements(tree(matrix)).filter(([tag]) => tag === "mtr").length, 4);
});

Deno.test("math tree: refuses links, HTML, other invalid commands, and macros without end", () => {
  for (
    const hostile of [
      "\\href{javascript:alert(1)}{x}",
      "\\url{javascript:alert(1)}",
      "\\htmlData{onclick=alert(1)}{x}",
      "\\class{primary}{x}",
      "\\id{main}{x}",
      "\\style{position:fixed}{x}",
      "\\includegraphics{https://evil.example/p.png}",
      "\\textcolor{url(https://evil.example)}{x}",
      "\\def\\a{\\a\\a}\\a",
      "\\def\\a#1{#1#1#1#1}\\a{\\a{\\a{\\a{\\a{\\a{\\a{\\a{x}}}}}}}}",
      "{".repeat(4000),
      "\\overbrace{".repeat(150) + "x" + "}".repeat(150),
      "x".repeat(6000),
      "\\frac{a}",
    ]
  ) {
    assertThrows(() => tree(hostile), Error, "", hostile);
  }
});

Deno.test("math tree: has only harmless attributes and styles, and bounded sizes", () => {
  const formula =
    "\\pmb{x}\\ref{main}\\label{main}\\text{<img src=x onerror=alert(1)>}\\fbox{a}\\cancelto{0}{x}\\sout{y}" +
    "\\begin{array}{c|c}\\hline 1&2\\end{array}\\tag{1}\\colorbox{red}{x}\\rule{900em}{900em}\\raisebox{900em}{x}\\kern-900em";
  const found = elements(tree(formula, true));
  for (const [tag, attributes, styles] of found) {
    assert(/^m[a-z]+$/.test(tag), tag);
    for (const name of Object.keys(attributes)) assert(!/^(on|href|src|id|style)/i.test(name), name);
    for (const value of Object.values({ ...attributes, ...styles })) {
      assert(!/[(:;]/.test(value), value);
      assert(Math.abs(parseFloat(value) || 0) <= 200, value);
    }
  }
  assert(JSON.stringify(found).includes("onerror=alert(1)"), "the text is shown");
});
