/** Tool calls of random tokens; ajv validates them against the original schemas. */

import { Ajv } from "ajv/dist/ajv.js";
import { Ajv2020 } from "ajv/dist/2020.js";
import formats from "ajv-formats";
import { read, walk } from "../../engine/chat/formats/testing_walks.ts";
import { type TestModel, USER } from "../../engine/chat/testing.ts";
import type { Tool, ToolChoice } from "../../engine/chat/types.ts";
import { createGrammars } from "../../engine/grammar/grammars.ts";
import { FORMATS } from "../../engine/grammar/json_schema/formats.ts";
import { ConstraintError, type LoosenedSchema } from "../../engine/grammar/types.ts";
import { randomIntegers } from "../../engine/tokenizer/testing.ts";

export interface CallFigures {
  calls: number;
  /** Answers that ended at the token limit before they were complete. */
  cut: number;
  refused: string[];
  /** Calls that violate a keyword of their schema that was not loosened. */
  invalid: string[];
  readonly loosened: Map<string, readonly string[]>;
}

export interface AskedCalls {
  readonly choices: readonly ToolChoice[];
  readonly answers: number;
  readonly seed: number;
  /** Maximum tokens of an answer. */
  readonly most?: number;
}

/** Requests calls with all tools together, and adds the results to the figures. */
export async function askForCalls(
  model: TestModel,
  tools: readonly Tool[],
  { choices, answers, seed, most = 3000 }: AskedCalls,
  figures: CallFigures = noCalls(),
): Promise<CallFigures> {
  const note = ({ tool, keywords }: LoosenedSchema) => void figures.loosened.set(tool, keywords);
  const grammars = createGrammars(model.tokenizer, model.form.markers, { onLoosened: note });
  const random = randomIntegers(seed);
  try {
    for (const toolChoice of choices) {
      const plan = model.form.plan({ messages: USER, tools, toolChoice });
      const grammar = await grammars.compile(plan.constraint!);
      for (let i = 0; i < answers; i++) {
        const matcher = grammar.matcher();
        const { tokens, finished } = await walk(grammars, model, matcher, random, most);
        matcher.close();
        if (!finished) figures.cut++;
        for (const call of finished ? read(model, plan, tokens).calls : []) judge(call, tools, figures);
      }
    }
  } catch (error) {
    if (!(error instanceof ConstraintError)) throw error;
    figures.refused.push(`${tools.map(({ name }) => name).join().slice(0, 100)}: ${error.message}`);
  } finally {
    grammars.close();
  }
  return figures;
}

export function noCalls(): CallFigures {
  return { calls: 0, cut: 0, refused: [], invalid: [], loosened: new Map() };
}

function judge(
  call: { name: string; arguments: string },
  tools: readonly Tool[],
  figures: CallFigures,
): void {
  figures.calls++;
  const tool = tools.find(({ name }) => name === call.name);
  if (!tool) return void figures.invalid.push(`unknown tool ${call.name}`);
  const loosened = figures.loosened.get(call.name) ?? [];
  for (const { schemaPath, message } of errorsOf(tool.parameters ?? {}, call.arguments)) {
    const keyword = schemaPath.split("/").at(-1)!;
    if (loosened.some((pointer) => pointer === "" || pointer.endsWith(`/${keyword}`))) continue;
    figures.invalid.push(`${call.name}(${call.arguments}): ${schemaPath} ${message}`);
  }
}

const judges = new WeakMap<object, (value: unknown) => readonly { schemaPath: string; message?: string }[]>();

function errorsOf(schema: Readonly<Record<string, unknown>>, text: string) {
  let validate = judges.get(schema);
  if (!validate) {
    const isOld = String(schema.$schema).includes("draft-07");
    // Without this precision, ajv's division of binary fractions rejects 0.07 as a multiple of 0.01.
    const options = { strict: false, allErrors: true, multipleOfPrecision: 9, logger: false } as const;
    const ajv = isOld ? new Ajv(options) : new Ajv2020(options);
    // Formats that the grammar does not know are annotations.
    formats.default(ajv, [...FORMATS.keys()] as never);
    const { $schema: _, ...rest } = schema;
    const compiled = ajv.compile(rest);
    judges.set(schema, validate = (value) => compiled(value) ? [] : compiled.errors!);
  }
  return validate(JSON.parse(text));
}
