import { z } from "@hono/zod-openapi";
import { type Constraint, grammarConstraint, tryJson } from "../../engine/mod.ts";
import { depthOf, MAX_JSON_DEPTH } from "../../jobs/json_depth.ts";
import { boundedArray, documented, LIMITS, refuse, special, text, unsupported } from "../core/fields.ts";
import { HugeNumber } from "../core/json.ts";

/** A JSON schema, not yet checked. The engine decides whether it is valid and supported. */
export type JsonSchemaBody = boolean | JsonObject;
type JsonObject = Readonly<Record<string, unknown>>;

/**
 * Returns whether the schema has a number that exceeds a 64-bit float. Such a number would be dropped, or change a
 * rule.
 */
function hasHugeNumber(value: unknown): boolean {
  if (typeof value === "number") return !Number.isFinite(value);
  if (typeof value !== "object" || value === null) return false;
  return value instanceof HugeNumber || Object.values(value).some(hasHugeNumber);
}

/** Returns a schema that accepts an object (or a boolean). The depth is already bounded for the whole body. */
function jsonValue<T>(what: string, orBoolean: boolean) {
  return z.custom<T>((value) => {
    if (typeof value === "boolean") return orBoolean;
    return typeof value === "object" && value !== null && !Array.isArray(value) && !hasHugeNumber(value);
  }, { error: `must be ${what} whose numbers a 64-bit float holds` });
}

const SCHEMA = { type: ["object", "boolean"], description: "JSON Schema 2020-12" };

export const jsonSchema = documented(jsonValue<JsonSchemaBody>("a JSON schema", true), SCHEMA);
const jsonSchemaOrNull = documented(jsonSchema.nullish(), {
  ...SCHEMA,
  type: ["object", "boolean", "null"],
});
/** Schema of a function's arguments, which are always an object. */
export const argumentsSchema = documented(
  jsonValue<JsonObject>("a JSON schema of an object", false),
  { ...SCHEMA, type: "object" },
);
export const argumentsSchemaOrNull = documented(argumentsSchema.nullish(), {
  ...SCHEMA,
  type: ["object", "null"],
});
/** Schema of an object whose numbers keep their text. */
export const jsonObject = documented(jsonValue<JsonObject>("an object", false), { type: "object" });

const schemaText = text(1, LIMITS.grammarCharacters);
/** Schema of a JSON schema, or its text: vLLM accepts both. */
const schemaOrText = z.union([schemaText, jsonSchema], { error: "must be a JSON schema, or one in a text" })
  .superRefine((value, ctx) => {
    if (typeof value !== "string") return;
    const parsed = tryJson(value);
    const depth = depthOf(parsed);
    if (depth > MAX_JSON_DEPTH) {
      const message = `must be a JSON schema of at most ${MAX_JSON_DEPTH} levels`;
      ctx.addIssue({ code: "custom", message, input: depth });
    } else if (!jsonSchema.safeParse(parsed).success) {
      ctx.addIssue({
        code: "custom",
        message: "must be the text of a JSON schema",
        input: value,
      });
    }
  });

const grammarText = text(1, LIMITS.grammarCharacters);
const choices = boundedArray(text(1, LIMITS.grammarCharacters), 1, LIMITS.guidedChoices);

const namedSchema = z.object({
  name: text(1, 256).nullish(),
  description: z.string().nullish(),
  strict: z.boolean().nullish().openapi({
    description:
      "Whether objects may have only the properties that the schema lists. The schema is always enforced",
  }),
  schema: jsonSchema,
});

const responseFormat = z.discriminatedUnion("type", [
  z.object({ type: z.literal("text") }),
  z.object({ type: z.literal("json_object"), schema: jsonSchemaOrNull }),
  z.object({
    type: z.literal("json_schema"),
    json_schema: namedSchema.nullish().openapi({ description: "In OpenAI's format" }),
    schema: jsonSchemaOrNull.openapi({ description: "In llama-server's format" }),
  }).openapi({
    oneOf: [
      {
        required: ["json_schema"],
        properties: { json_schema: { type: "object" }, schema: { type: "null" } },
      },
      {
        required: ["schema"],
        properties: { schema: { type: ["object", "boolean"] }, json_schema: { type: "null" } },
      },
    ],
  } as never),
], { error: 'must be "text", "json_object" or "json_schema"' }).superRefine((format, ctx) => {
  if (format.type !== "json_schema") return;
  const given = [format.json_schema, format.schema].filter((value) => value !== undefined && value !== null);
  if (given.length === 1) return;
  const message = given.length === 0
    ? 'A "response_format" of type json_schema needs "json_schema" with a "schema"'
    : 'A "response_format" must have one schema: "json_schema" or "schema" (got both)';
  refuse(ctx, ["json_schema"], given.length === 0 ? "missing_required_parameter" : "invalid_value", message);
});

const STRUCTURES = ["json", "regex", "choice", "grammar", "json_object"] as const;

const structuredOutputs = z.object({
  json: schemaOrText.nullish(),
  regex: grammarText.nullish(),
  choice: choices.nullish(),
  grammar: grammarText.nullish(),
  json_object: z.boolean().nullish(),
  structural_tag: special({ type: "null", description: "Not supported" }),
}).superRefine((outputs, ctx) => {
  if (isGiven(outputs.structural_tag)) {
    unsupported(ctx, "structural_tag", "tags; use tools");
  }
  const given = STRUCTURES.filter((name) => name === "json_object" ? outputs[name] : isGiven(outputs[name]));
  if (given.length === 1) return;
  refuse(
    ctx,
    [],
    "invalid_value",
    `Invalid "structured_outputs": must have exactly one of ${STRUCTURES.join(", ")} (got ${
      given.join(" and ") || "none"
    })`,
  );
}).openapi({
  // The alternatives exclude each other; each allows null in the other fields.
  anyOf: STRUCTURES.map((name) => ({
    required: [name],
    properties: Object.fromEntries(STRUCTURES.map((other) => {
      if (other !== name) {
        return [other, other === "json_object" ? { enum: [null, false] } : { type: "null" }];
      }
      return [name, name === "json_object" ? { enum: [true] } : { not: { type: "null" } }];
    })),
  })),
} as never);

/** Fields for the form of the answer, named as by OpenAI, llama-server and vLLM. */
export const constraintFields = {
  response_format: responseFormat.nullish(),
  grammar: text(0, LIMITS.grammarCharacters).nullish().openapi({
    description: 'In llama.cpp\'s GBNF; "" is none',
  }),
  json_schema: jsonSchemaOrNull,
  guided_json: schemaOrText.nullish(),
  guided_regex: grammarText.nullish(),
  guided_choice: choices.nullish(),
  guided_grammar: grammarText.nullish().openapi({
    description: "A GBNF grammar; a grammar without ::= is read as Lark",
  }),
  structured_outputs: structuredOutputs.nullish(),
};

type Fields = { [name in keyof typeof constraintFields]?: z.output<(typeof constraintFields)[name]> };

/** A requested form of the answer, and the parameter that requests it. */
export interface AskedForm {
  readonly constraint: Constraint;
  readonly param: string;
}

/**
 * Refuses a request with two different constraints. `own` is the constraint from a field that only this endpoint has.
 */
export function checkForms(body: Fields, ctx: z.RefinementCtx, own?: AskedForm): void {
  // Some clients send the same form in two fields.
  const forms = [...(own ? [own] : []), ...formsOf(body)];
  const texts = forms.map(({ constraint }) => JSON.stringify(constraint));
  const asked = forms.filter((_, i) => texts.indexOf(texts[i]) === i);
  if (asked.length < 2) return;
  const [first, second] = asked.map(({ param }) => param.split(".")[0]);
  const message = `"${first}" and "${second}" both constrain the answer; send one of them`;
  refuse(ctx, [second], "conflicting_parameters", message);
}

/** Returns the request's constraint, or undefined if its answer may be any text. */
export function formOf(body: Fields): AskedForm | undefined {
  return formsOf(body)[0];
}

function formsOf(body: Fields): AskedForm[] {
  const forms: AskedForm[] = [];
  const add = (param: string, constraint: Constraint) => forms.push({ param, constraint });
  const { response_format: format, structured_outputs: structured } = body;
  if (format?.type === "json_object") {
    if (isGiven(format.schema) && format.schema !== true && Object.keys(format.schema).length > 0) {
      add("response_format.schema", jsonForm(format.schema));
    } else add("response_format", ANY_OBJECT);
  } else if (format?.type === "json_schema") {
    if (format.json_schema) {
      const { schema, strict } = format.json_schema;
      add("response_format.json_schema.schema", jsonForm(schema, strict === true));
    } else add("response_format.schema", jsonForm(format.schema!));
  }
  if (body.grammar) add("grammar", { kind: "gbnf", grammar: body.grammar });
  if (isGiven(body.json_schema)) add("json_schema", jsonForm(body.json_schema));
  if (isGiven(body.guided_json)) add("guided_json", jsonForm(body.guided_json));
  if (isGiven(body.guided_regex)) add("guided_regex", { kind: "regex", pattern: body.guided_regex });
  if (isGiven(body.guided_choice)) add("guided_choice", { kind: "choice", choices: body.guided_choice });
  if (isGiven(body.guided_grammar)) add("guided_grammar", grammarConstraint(body.guided_grammar));
  if (isGiven(structured)) add(...structuredForm(structured));
  return forms;
}

function structuredForm(structured: z.output<typeof structuredOutputs>): [string, Constraint] {
  const { json, regex, choice, grammar } = structured;
  if (isGiven(json)) return ["structured_outputs.json", jsonForm(json)];
  if (isGiven(regex)) return ["structured_outputs.regex", { kind: "regex", pattern: regex }];
  if (isGiven(choice)) return ["structured_outputs.choice", { kind: "choice", choices: choice }];
  if (isGiven(grammar)) return ["structured_outputs.grammar", grammarConstraint(grammar)];
  return ["structured_outputs.json_object", ANY_OBJECT];
}

/** Returns whether a field is set: neither missing nor null. */
export function isGiven<T>(value: T | null | undefined): value is T {
  return value !== undefined && value !== null;
}

export const ANY_OBJECT: Constraint = { kind: "json_schema", schema: { type: "object" } };

/**
 * Returns the constraint of a JSON schema. `closed`: whether objects must not have properties that the schema does not
 * list.
 */
export function jsonForm(given: JsonSchemaBody | string, closed = false): Constraint {
  const schema = typeof given === "string" ? tryJson(given) : given;
  return { kind: "json_schema", schema, ...(closed && { closed }) };
}
