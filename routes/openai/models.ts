import { z } from "@hono/zod-openapi";
import { adaptedId, MODEL_STATES, type OfferedModel, unknownModel } from "../../engine/mod.ts";
import { endpoint } from "../core/endpoint.ts";
import { listOf, pageOf } from "../core/lists.ts";
import { modelName } from "../core/fields.ts";
import { MODEL_REFUSALS } from "../core/models.ts";

const model = z.object({
  id: z.string(),
  object: z.literal("model"),
  type: z.literal("model"),
  display_name: z.string(),
  created: z.number().int(),
  created_at: z.string().openapi({ format: "date-time" }),
  owned_by: z.string(),
  aliases: z.array(z.string()),
  parent: z.string().optional().openapi({ description: "The model that this adapter (LoRA) belongs to" }),
  status: z.object({ value: z.enum(MODEL_STATES) }),
  meta: z.object({ n_ctx: z.number().int(), n_vocab: z.number().int() }).optional().openapi({
    description: "Only for a loaded model",
  }),
  architecture: z.object({
    input_modalities: z.array(z.enum(["text", "image"])),
    output_modalities: z.array(z.literal("text")),
  }).optional().openapi({ description: "Whether the model reads images; only for a loaded model" }),
}).openapi("Model");

const modelList = listOf(model, "ModelList");

/** Returns the entries of a model and of its adapters, with the fields of both OpenAI and Anthropic. */
function shown({ id, aliases, state, engine, created }: OfferedModel): z.output<typeof model>[] {
  const meta = engine && { n_ctx: engine.model.contextLength, n_vocab: engine.model.vocabSize };
  const architecture = engine && {
    input_modalities: ["text" as const, ...(engine.model.images ? ["image" as const] : [])],
    output_modalities: ["text" as const],
  };
  const entry = (id: string, aliases: readonly string[], parent?: string) => ({
    id,
    object: "model" as const,
    type: "model" as const,
    display_name: id,
    created,
    created_at: new Date(1000 * created).toISOString(),
    owned_by: "compy",
    aliases: [...aliases],
    parent,
    status: { value: state },
    meta,
    architecture,
  });
  const adapters = engine?.model.adapters ?? [];
  return [entry(id, aliases), ...adapters.map((adapter) => entry(adaptedId(id, adapter), [], id))];
}

const list = endpoint({
  method: "get",
  path: "/v1/models",
  operationId: "listModels",
  tag: "Models",
  summary: "List the models",
  answer: modelList,
  answers: "The list",
}, (_, { models }) => pageOf(models.list().flatMap(shown), false));

const one = endpoint({
  method: "get",
  path: "/v1/models/{model}",
  pattern: "/v1/models/:model{.+}",
  operationId: "retrieveModel",
  tag: "Models",
  summary: "Describe one model",
  params: z.object({ model: z.string().openapi({ example: "demo" }) }),
  answer: model,
  answers: "The model",
  refusals: { 404: "No such model" },
}, ({ params }, { models }) => {
  const found = models.find(params.model);
  if (!found) throw unknownModel(params.model, models.list());
  const entries = shown(found);
  return entries.find(({ id }) => id === params.model) ?? entries[0];
});

const named = z.object({ model: modelName }).openapi("ModelRequest");
const done = z.object({ success: z.literal(true) }).openapi("Success");

const load = endpoint({
  method: "post",
  path: "/models/load",
  operationId: "loadModel",
  tag: "Models",
  summary: "Load a model, and wait until it is loaded",
  body: named,
  example: { model: "demo" },
  answer: done,
  answers: "It is loaded",
  refusals: MODEL_REFUSALS,
}, async ({ body, raw }, { models }) => {
  await models.load(body.model, { signal: raw.signal });
  return { success: true as const };
});

const unload = endpoint({
  method: "post",
  path: "/models/unload",
  operationId: "unloadModel",
  tag: "Models",
  summary: "Unload a model when the requests that it answers have ended",
  body: named,
  example: { model: "demo" },
  answer: done,
  answers: "The model is unloaded, and its memory is free",
  refusals: { 404: MODEL_REFUSALS[404] },
}, async ({ body }, { models }) => {
  await models.unload(body.model);
  return { success: true as const };
});

export const models = [list, one, load, unload];
