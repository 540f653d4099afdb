import { z } from "@hono/zod-openapi";
import { basename } from "@std/path";
import { endpoint } from "../core/endpoint.ts";
import { modelQuery } from "../core/fields.ts";
import { MODEL_REFUSALS, withModel } from "../core/models.ts";

const adapter = z.object({
  id: z.number().int(),
  path: z.string().openapi({ description: "The name of the file, without its folder" }),
  scale: z.number().openapi({ description: "Factor in requests that choose no adapters" }),
  name: z.string().openapi({ description: "Requests for the model MODEL:NAME use this adapter" }),
}).openapi("LoraAdapter");

/** Endpoint that lists the model's adapters in llama-server's format. */
export const loraAdapters = endpoint(
  {
    method: "get",
    path: "/lora-adapters",
    operationId: "listLoraAdapters",
    tag: "Operation",
    summary: "List a model's LoRA adapters",
    query: z.object({ model: modelQuery }),
    loads: true,
    answer: z.array(adapter),
    refusals: MODEL_REFUSALS,
    answers: "The adapters, in the order of their ids",
  },
  ({ query, raw }, { models }) =>
    withModel(
      models,
      query.model,
      raw,
      ({ model: { adapters = [] } }) =>
        adapters.map(({ id, path, scale, name }) => ({ id, path: basename(path), scale, name })),
    ),
);
