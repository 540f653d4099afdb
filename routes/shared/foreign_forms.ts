import type { z } from "@hono/zod-openapi";
import { refuse, special } from "./fields.ts";

/*
 * Ways to ask for a form of an answer, or for calls, which some server or another endpoint has. Who sends one to an endpoint that
 * does not know it must not get an answer in any form.
 */

interface Way {
  readonly asks: (value: unknown) => boolean;
  /** What may stand there, since it asks for nothing. */
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

/** What an endpoint's requests have of the ways that it does not know. */
export interface ForeignForms {
  /** Typed as none, since nothing reads them but `check`. */
  readonly fields: Record<never, never>;
  check(body: object, ctx: z.RefinementCtx): void;
}

/** `own`: fields that the endpoint has. `instead`: how it is asked for forms and calls. */
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
