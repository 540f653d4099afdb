import { z } from "@hono/zod-openapi";
import { type Engine, unknownModel } from "../../engine/mod.ts";
import { endpoint } from "../core/endpoint.ts";
import { ApiError } from "../core/errors.ts";
import { modelQuery } from "../core/fields.ts";

const count = z.number().int();

const slot = z.object({
  id: count,
  model: z.string(),
  n_ctx: count,
  is_processing: z.boolean(),
  id_task: count.openapi({
    description: "Number of the request among the model's requests; -1 if the slot is idle",
  }),
  n_prompt_tokens: count,
  n_past: count.openapi({ description: "Computed tokens of prompt and answer" }),
  next_token: z.object({ n_decoded: count, n_remain: count }),
}).openapi("Slot");

/** Endpoint /slots, in llama-server's format but without prompt or answer texts. */
export const slots = endpoint({
  method: "get",
  path: "/slots",
  operationId: "listSlots",
  tag: "Operation",
  summary: "List the slots, with the progress of their requests",
  query: z.object({
    model: modelQuery,
    fail_on_no_slot: z.string().max(1).optional().openapi({
      description: '"1": answer 503 if all slots are taken',
    }),
  }),
  answer: z.array(slot),
  answers: "The slots of all loaded models, or of the named model",
  refusals: { 404: "No such model", 503: "All slots are taken, and the request has fail_on_no_slot=1" },
}, ({ query }, { models }) => {
  const named = query.model === undefined ? undefined : models.find(query.model);
  if (query.model !== undefined && !named) throw unknownModel(query.model, models.list());
  const offered = named ? [named] : models.list();
  const all = offered.flatMap(({ engine }) => engine ? slotsOf(engine) : []).map((slot, id) => ({
    id,
    ...slot,
  }));
  if (query.fail_on_no_slot === "1" && all.length > 0 && all.every(({ is_processing }) => is_processing)) {
    throw new ApiError(503, "no_slot", "All slots are taken");
  }
  return all;
});

function slotsOf(engine: Engine): Omit<z.output<typeof slot>, "id">[] {
  return engine.slots().map((sequence) => ({
    model: engine.model.id,
    n_ctx: engine.model.contextLength,
    is_processing: sequence !== undefined,
    id_task: sequence?.id ?? -1,
    n_prompt_tokens: sequence?.promptTokens ?? 0,
    n_past: sequence?.cachedTokens ?? 0,
    next_token: {
      n_decoded: sequence?.generatedTokens ?? 0,
      n_remain: sequence ? sequence.maxTokens - sequence.generatedTokens : -1,
    },
  }));
}
