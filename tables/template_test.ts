import { assertEquals, assertThrows } from "@std/assert";
import { parseTemplate } from "./template.ts";

Deno.test("prompt template: a column name in braces becomes the cell, and doubled braces become braces", () => {
  const { columns, render } = parseTemplate("{{{a}}} of {b c}, {a}: {{json}}", ["a", "b c"]);
  assertEquals(columns, ["a", "b c"]);
  assertEquals(render(["x", "y {a}"]), "{x} of y {a}, x: {json}");
});

Deno.test("prompt template: renders numbers, booleans, lists and missing values", () => {
  const { render } = parseTemplate("{a}|{b}|{c}|{d}|{e}", ["a", "b", "c", "d", "e"]);
  assertEquals(
    render([1.5, 2n ** 63n, false, ["x", 1n, null], null]),
    '1.5|9223372036854775808|false|["x",1,null]|',
  );
});

Deno.test("prompt template: gives no prompt if all its cells are missing, and the same prompt for all rows if it names no column", () => {
  assertEquals(parseTemplate("About {a} and {b}", ["a", "b"]).render([" ", null]), undefined);
  assertEquals(parseTemplate("About {a} and {b}", ["a", "b"]).render([" ", "x"]), "About   and x");
  assertEquals(parseTemplate("Hello", []).render([]), "Hello");
});

Deno.test("prompt template: refuses unknown columns and unmatched braces, and says what to do", () => {
  const refused = (text: string, message: string) =>
    assertThrows(() => parseTemplate(text, ["text", "stars"]), Error, message);
  refused("{txt}", 'there is no column "txt"; the columns are "text", "stars". Write {{ for a brace');
  refused('{"a": 1}', 'there is no column ""a": 1"');
  refused("a {text", "the { at character 3 is not closed");
  refused("a } b", "the } at character 3 has no opening brace");
});
