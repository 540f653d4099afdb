import type { z } from "@hono/zod-openapi";
import { refuse, special } from "../core/fields.ts";

/*
 * Fields of other servers or endpoints that ask for a form of the answer or for tool calls. An endpoint that does not
 * support such a field must refuse it, because an answer without the form would be wrong.
 */

interface Way {
  readonly asks: (value: unknown) => boolean;
  /** Values that are allowed, because they ask for nothing. */
  readonly passes: Readonly<Record<string, unknown>>;
}

const isGiven = (value: unknown) => value !== undefined && value !== null;
const isForm = (value: unknown) => isObject(value) && value.type !== "text";

const TEXT_ONLY = { type: "object", required: ["type"], properties: { type: { const: "text" } } };
const NO_FORM = { not: { type: "object", not: TEXT_ONLY } };
const NO_FORMAT = {
  not: { type: "object", required: ["format"], properties: { format: { type: "object", not: TEXT_ONLY } } },
};

const anything: Way = { asks: isGiven, passes: { type: "null" } };
const grammar: Way = {
  asks: (value) => isGiven(value) && value !== "",
  passes: { enum: ["", null] },
};
const form: Way = { asks: isForm, passes: NO_FORM };
const settings: Way = { asks: (value) => isObject(value) && isForm(value.format), passes: NO_FORMAT };
const list: Way = {
  asks: (value) => isGiven(value) && !(Array.isArray(value) && value.length === 0),
  passes: { type: ["array", "null"], maxItems: 0 },
};

const WAYS = {
  ebnf: anything,
  functions: list,
  grammar,
  guided_choice: anything,
  guided_grammar: anything,
  guided_json: anything,
  guided_json_object: anything,
  guided_regex: anything,
  json_schema: anything,
  output_config: settings,
  output_format: form,
  regex: anything,
  response_format: form,
  structural_tag: anything,
  structured_outputs: anything,
  text: settings,
  tools: list,
} satisfies Record<string, Way>;

/** The unsupported fields of an endpoint, and their check. */
export interface ForeignForms {
  /** Typed as empty, because only `check` reads these fields. */
  readonly fields: Record<never, never>;
  check(body: object, ctx: z.RefinementCtx): void;
}

/** `own`: fields that the endpoint supports. `instead`: advice on how to ask for forms and calls. */
export function foreignForms(own: readonly string[], instead: string): ForeignForms {
  const ways = Object.entries<Way>(WAYS).filter(([name]) => !own.includes(name));
  return {
    fields: Object.fromEntries(
      ways.map(([name, { passes }]) => [name, special({ ...passes, description: "Not supported" })]),
    ),
    check(body, ctx) {
      const given = body as Readonly<Record<string, unknown>>;
      for (const [name, { asks }] of ways) {
        if (!asks(given[name])) continue;
        const message = `Unsupported parameter "${name}": this endpoint knows no such field; ${instead}`;
        refuse(ctx, [name], "unsupported_parameter", message);
      }
    },
  };
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
