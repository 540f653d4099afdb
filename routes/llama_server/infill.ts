import { z } from "@hono/zod-openapi";
import type { Engine } from "../../engine/mod.ts";
import { boundedArray, LIMITS, text } from "../core/fields.ts";
import type { Prepared, RunOptions } from "../generation/generation.ts";
import { generation } from "../generation/generation_endpoint.ts";
import { llamaServerAnswer, llamaServerEvent } from "./answer.ts";
import { infillPrompt } from "../generation/infill_prompt.ts";
import { checkLlamaServer, formsOf, llamaServerFields, maxTokensOf, prepareLlamaServer } from "./request.ts";
import { paced } from "../core/paced.ts";

const request = z.object({
  ...llamaServerFields,
  input_prefix: z.string().openapi({ description: "Text before the gap" }),
  input_suffix: z.string().openapi({ description: "Text after the gap" }),
  prompt: z.string().nullish().openapi({
    description: "Beginning of the text in the gap; the answer continues it",
  }),
  input_extra: boundedArray(
    z.object({ filename: text(1, 1000).nullish(), text: z.string() }),
    0,
    LIMITS.infillFiles,
  ).nullish().openapi({
    description: "Other files, most useful last; if not all fit, the first are left out",
  }),
}).superRefine(checkLlamaServer).openapi("InfillRequest");

type Body = z.output<typeof request>;

/** Share of the context reserved for the answer if the request gives no limit. */
const ANSWER_SHARE = 1 / 8;

/** Endpoint /infill, in llama-server's format. */
export const infill = generation({
  path: "/infill",
  operationId: "createInfill",
  summary: "Fill a gap in a text, with a model that was trained for it",
  request,
  answer: llamaServerAnswer,
  chunk: { name: "LlamaServerEvent", schema: llamaServerEvent, withoutDone: true },
  example: {
    input_prefix: "def add(a, b):\n    return ",
    input_suffix: "\n\nprint(add(1, 2))\n",
    n_predict: 8,
  },
  forms: formsOf,
  prepare,
});

/** Prepares an infill request. Throws ApiError, and EngineError for a text that is too long. */
async function prepare(engine: Engine, body: Body, options: RunOptions): Promise<Prepared> {
  const maxTokens = maxTokensOf(body);
  const gap = {
    prefix: body.input_prefix.toWellFormed(),
    suffix: body.input_suffix.toWellFormed(),
    start: body.prompt?.toWellFormed() ?? "",
    files: body.input_extra?.map(({ filename, text }, i) => {
      return { name: filename?.toWellFormed() ?? `file ${i + 1}`, text: text.toWellFormed() };
    }) ?? [],
    room: maxTokens ?? Math.ceil(engine.model.contextLength * ANSWER_SHARE),
  };
  const { tokens, truncated } = await paced(() => infillPrompt(engine, gap));
  return await prepareLlamaServer(engine, body, options, { tokens, truncated });
}
