import { z } from "@hono/zod-openapi";
import type { Engine } from "../../engine/types.ts";
import { endpoint } from "../shared/endpoint.ts";
import { checkModel } from "../shared/generation.ts";

const model = z.object({
  id: z.string(),
  object: z.literal("model"),
  created: z.number().int(),
  owned_by: z.string(),
  meta: z.object({ n_ctx: z.number().int(), n_vocab: z.number().int() }),
}).openapi("Model");

const modelList = z.object({ object: z.literal("list"), data: z.array(model) }).openapi("ModelList");

function loaded({ model: { id, created, contextLength, vocabSize } }: Engine): z.output<typeof model> {
  const meta = { n_ctx: contextLength, n_vocab: vocabSize };
  return { id, object: "model", created, owned_by: "compy", meta };
}

const list = endpoint({
  method: "get",
  path: "/v1/models",
  operationId: "listModels",
  tag: "Models",
  summary: "List the loaded model",
  answer: modelList,
  answers: "The list",
}, (_, { engine }) => ({ object: "list" as const, data: [loaded(engine)] }));

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
}, ({ params }, { engine }) => {
  checkModel(engine, params.model);
  return loaded(engine);
});

export const models = [list, one];
