import { z } from "@hono/zod-openapi";
import { basename } from "@std/path";
import { DEFAULT_SAMPLING } from "../../engine/mod.ts";
import { endpoint } from "../core/endpoint.ts";
import { modelQuery } from "../core/fields.ts";
import { samplingSettings, settingsOf } from "./answer.ts";
import { MODEL_REFUSALS, textOfToken, withModel } from "../core/models.ts";

const answer = z.object({
  default_generation_settings: z.object({ n_ctx: z.number().int(), params: samplingSettings }),
  total_slots: z.number().int().openapi({
    description: "Maximum concurrent sequences; further requests wait",
  }),
  model_alias: z.string().openapi({ description: "The model's id" }),
  model_path: z.string().openapi({ description: "The name of the file, without its folder" }),
  chat_template: z.string(),
  bos_token: z.string(),
  eos_token: z.string(),
  modalities: z.object({ vision: z.boolean(), audio: z.literal(false) }),
  build_info: z.string(),
}).openapi("Props");

/** Endpoint /props, in llama-server's format. */
export const props = endpoint({
  method: "get",
  path: "/props",
  operationId: "getProps",
  tag: "Operation",
  summary: "Describe a model and its default generation settings",
  query: z.object({ model: modelQuery }),
  loads: true,
  answer,
  refusals: MODEL_REFUSALS,
  answers: "Its properties",
}, ({ query, raw }, { models }) =>
  withModel(models, query.model, raw, (engine) => ({
    default_generation_settings: {
      n_ctx: engine.model.contextLength,
      params: settingsOf(DEFAULT_SAMPLING, {}),
    },
    total_slots: engine.slots().length,
    model_alias: engine.model.id,
    model_path: basename(engine.model.path),
    chat_template: engine.chatTemplate.source,
    bos_token: textOfToken(engine, engine.tokenizer.bosToken) ?? "",
    eos_token: textOfToken(engine, engine.tokenizer.eosToken) ?? "",
    modalities: { vision: engine.model.images === true, audio: false as const },
    build_info: "compy",
  })));
