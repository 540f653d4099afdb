import { assertEquals, assertStrictEquals, assertThrows } from "@std/assert";
import { createGrammars } from "../grammar/grammars.ts";
import { ConstraintError } from "../grammar/types.ts";
import { LarkGrammar } from "./lark.ts";
import {
  type Parameter,
  parameterList,
  parametersOf,
  parameterValues,
  valuesByName,
  writtenParameters,
} from "./parameters.ts";
import { testModel } from "./testing.ts";
import { checkTool } from "./tools.ts";

const parameters = (schema: Record<string, unknown>, strict = true) =>
  parametersOf(checkTool({ name: "f", parameters: schema, strict }));

Deno.test("tool parameters: classifies each value by how call formats can write it: as text, choice, boolean, list, object or JSON", () => {
  const found = parameters({
    properties: {
      text: { type: "string", description: "any" },
      choice: { enum: ["a", "b"] },
      constant: { const: "c" },
      flag: { type: "boolean", default: true },
      list: { type: "array", items: { type: "string" } },
      object: { type: "object", properties: { x: { type: "number" } }, required: ["x"] },
      short: { type: "string", maxLength: 3 },
      few: { type: "array", items: { type: "string" }, maxItems: 2 },
      mixed: { enum: ["a", 1] },
      any: true,
    },
    required: ["text", "unnamed"],
  });
  assertEquals(
    found.map(({ name, value, required }) => [name, value.kind, required]),
    [
      ["text", "text", true],
      ["choice", "choice", false],
      ["constant", "choice", false],
      ["flag", "boolean", false],
      ["list", "list", false],
      ["object", "object", false],
      ["short", "json", false],
      ["few", "json", false],
      ["mixed", "json", false],
      ["any", "json", false],
      ["unnamed", "json", true],
    ],
  );
});

Deno.test("tool parameters: the schema of one parameter keeps the definitions that it refers to", () => {
  const $defs = { page: { type: "integer" }, next: { $ref: "#/$defs/page" } };
  const [{ value }] = parameters({ properties: { page: { $ref: "#/$defs/next" } }, $defs });
  assertEquals(value, {
    kind: "json",
    form: {
      kind: "json_schema",
      closed: true,
      schema: {
        $ref: "#/$defs/root/$defs/next",
        $defs: {
          root: {
            type: "object",
            properties: { page: { $ref: "#/$defs/root/$defs/next" } },
            $defs: { page: { type: "integer" }, next: { $ref: "#/$defs/root/$defs/page" } },
          },
        },
      },
    },
  });
});

Deno.test("tool parameters: a tool's schema is split once, and each list has one map by name", () => {
  const tools = [
    checkTool({ name: "f", parameters: { type: "object", properties: { x: { type: "string" } } } }),
  ];
  assertStrictEquals(parametersOf(tools[0]), parametersOf(tools[0]));
  assertStrictEquals(parameterValues(tools, "f"), valuesByName(parametersOf(tools[0])));
});

Deno.test("tool parameters: follows a reference at the root of the schema", () => {
  const definitions = { f: { type: "object", properties: { a: { type: "string" } }, required: ["a"] } };
  assertEquals(parameters({ $ref: "#/definitions/f", definitions }), [
    { name: "a", required: true, value: { kind: "text" } },
  ]);
  assertThrows(
    () => parameters({ $ref: "#/definitions/g", definitions }),
    ConstraintError,
    '"$ref" at the top',
  );
  assertThrows(() =>
    parameters({ $ref: "#/definitions/g", definitions: { g: { $ref: "#/definitions/g" } } })
  );
});

Deno.test("tool parameters: refuses a strict tool whose schema a list of parameters cannot represent", () => {
  for (
    const more of ["allOf", "anyOf", "if", "minProperties", "patternProperties", "dependentRequired", "$ref"]
  ) {
    const schema = { properties: { a: { type: "string" } }, [more]: [] };
    assertThrows(() => parameters(schema), ConstraintError, `"${more}" at the top`);
    const lark = new LarkGrammar();
    const tool = checkTool({ name: "f", parameters: schema });
    assertEquals(writtenParameters(lark, tool).map(({ name }) => name), ["a"]);
    assertEquals(lark.loosened, [{ tool: "f", keywords: [`/${more}`] }]);
  }
});

Deno.test("tool parameters: a format's list of parameters accepts every selection of optional ones, in order, and nothing else", async () => {
  const grammars = createGrammars(testModel({}).tokenizer);
  try {
    for (let required = 0; required < 8; required++) {
      const list: Parameter[] = ["a", "b", "c"].map((name, i) => ({
        name,
        required: (required >> i & 1) === 1,
        value: { kind: "boolean" },
      }));
      const lark = new LarkGrammar();
      const expression = parameterList(list, '","', ({ name }) => lark.text(name), (rule) => lark.rule(rule));
      const grammar = await grammars.compile(lark.build(`"(" ${expression} ")"`));
      for (const text of ["", "a", "b", "c", "a,b", "a,c", "b,c", "a,b,c", "b,a", "a,a", ",a", "a,"]) {
        const names = text.split(",").filter((name) => name !== "");
        const isList = names.join(",") === text && names.toSorted().join() === names.join() &&
          new Set(names).size === names.length;
        const expected = isList && list.every(({ name, required }) => !required || names.includes(name));
        const matcher = grammar.matcher();
        const taken = [...`(${text})`].every((unit) => matcher.consume(unit.charCodeAt(0)));
        assertEquals(taken && (matcher.mayEnd || matcher.complete), expected, `${text} of ${required}`);
        matcher.close();
      }
    }
  } finally {
    grammars.close();
  }
});
