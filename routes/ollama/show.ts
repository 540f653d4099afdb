import { basename } from "@std/path";
import { z } from "@hono/zod-openapi";
import { type Engine, unknownModel } from "../../engine/mod.ts";
import { endpoint } from "../core/endpoint.ts";
import { modelField } from "../core/fields.ts";
import { MODEL_REFUSALS, withModel } from "../core/models.ts";
import { OLLAMA_ERRORS } from "./errors.ts";
import { entriesOf, modelEntry } from "./models.ts";
import { paced } from "../core/paced.ts";

const request = z.object({
  model: modelField,
  name: modelField.openapi({ description: "Older than model" }),
  verbose: z.boolean().nullish().openapi({ description: "Without effect" }),
}).openapi("OllamaShowRequest");

const answer = z.object({
  modelfile: z.string(),
  parameters: z.string(),
  template: z.string().openapi({ description: "In Jinja" }),
  details: modelEntry.shape.details,
  model_info: z.record(z.string(), z.union([z.string(), z.number()])),
  capabilities: z.array(z.enum(["completion", "tools", "thinking", "insert", "embedding", "vision"])),
  modified_at: modelEntry.shape.modified_at,
}).openapi("OllamaShow");

export const show = endpoint(
  {
    method: "post",
    path: "/api/show",
    operationId: "ollamaShow",
    tag: "Ollama",
    summary: "Describe a model in Ollama's format; loads it if necessary",
    body: request,
    example: { model: "demo" },
    answer,
    errors: OLLAMA_ERRORS,
    answers: "The model",
    refusals: MODEL_REFUSALS,
  },
  ({ body, raw }, { models }) =>
    withModel(models, body.model ?? body.name, raw, async (engine) => {
      const { id, path, architecture, contextLength, vocabSize, pooled } = engine.model;
      const offered = models.find(id);
      if (!offered) throw unknownModel(id, models.list());
      const [{ details, modified_at }] = await entriesOf(offered);
      return {
        modelfile: `FROM ${basename(path)}`,
        parameters: `num_ctx ${contextLength}`,
        template: engine.chatTemplate.source,
        details,
        model_info: {
          "general.architecture": architecture,
          "general.basename": id,
          [`${architecture}.context_length`]: contextLength,
          [`${architecture}.vocab_size`]: vocabSize,
          ...(pooled ? { [`${architecture}.embedding_length`]: pooled.size } : {}),
        },
        capabilities: await capabilitiesOf(engine),
        modified_at,
      };
    }),
);

async function capabilitiesOf(engine: Engine): Promise<z.output<typeof answer>["capabilities"]> {
  const { pooled } = engine.model;
  if (pooled?.encoder) return pooled.kind === "rank" ? [] : ["embedding"];
  return [
    "completion",
    ...(/\btools\b/.test(engine.chatTemplate.source) ? ["tools" as const] : []),
    ...(await thinks(engine) ? ["thinking" as const] : []),
    ...(engine.tokenizer.infill ? ["insert" as const] : []),
    ...(engine.model.images ? ["vision" as const] : []),
  ];
}

async function thinks({ chatForm }: Engine): Promise<boolean> {
  try {
    const messages = [{ role: "user", content: "Hi" }];
    return (await paced(() => chatForm.plan({ messages }))).thinking !== undefined;
  } catch {
    return false; // the template refuses this conversation
  }
}
