import { createHash } from "node:crypto";
import { stat } from "node:fs/promises";
import { z } from "@hono/zod-openapi";
import type { Models, ModelUser, OfferedModel } from "../../engine/mod.ts";
import { modelField } from "../core/fields.ts";

/* Names, descriptions and keep-alive times of models in Ollama's format. */

const LATEST = ":latest";
const MS: Readonly<Record<string, number>> = {
  ns: 1e-6,
  us: 1e-3,
  "µs": 1e-3,
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
};
const DURATION = /^-?(?:\d{1,15}|(?:\d{1,15}(?:\.\d{1,15})?(?:ns|us|µs|ms|s|m|h)){1,7})$/;

const keepAlive = z.union([z.number(), z.string().regex(DURATION)], {
  error: 'must be seconds, or a duration such as "5m"',
}).nullish().openapi({
  description:
    "Seconds, or a duration such as 5m, for which the model stays loaded after its last request; below 0 always",
});

/** Fields of every Ollama request for a model. */
export const modelFields = { model: modelField, keep_alive: keepAlive };

interface Fields {
  readonly model?: string | null;
  readonly keep_alive?: number | string | null;
}

/** Returns `keep_alive` in milliseconds, or undefined for the server's setting. */
function keepMsOf({ keep_alive: given }: Fields): number | undefined {
  if (given === undefined || given === null) return undefined;
  const text = String(given);
  if (text.startsWith("-")) return Infinity;
  if (!Number.isNaN(Number(text))) return 1000 * Number(text);
  const parts = [...text.matchAll(/([\d.]+)([a-zµ]+)/g)];
  return parts.reduce((sum, [, count, unit]) => sum + Number(count) * MS[unit], 0);
}

/** Returns the models with the request's `keep_alive`. */
export function modelsFor(models: Models, body: Fields): ModelUser {
  const keepMs = keepMsOf(body);
  return { use: (name, options) => models.use(name, { ...options, keepMs }) };
}

/** Loads the model, or unloads it if `keep_alive` is 0. Returns "load" or "unload". */
export async function loadOrUnload(
  models: Models,
  body: Fields,
  signal: AbortSignal,
): Promise<"load" | "unload"> {
  const [only, ...others] = models.list();
  const name = body.model ?? (others.length === 0 ? only?.id : undefined);
  const keepMs = keepMsOf(body);
  if (name !== undefined && keepMs === 0) {
    await models.unload(name);
    return "unload";
  }
  (await models.use(name, { signal, keepMs })).release();
  return "load";
}

const details = z.object({
  parent_model: z.literal(""),
  format: z.literal("gguf"),
  family: z.string().openapi({ description: "The architecture; only for a loaded model" }),
  families: z.array(z.string()).openapi({ description: "With clip for a model that reads images" }),
  parameter_size: z.literal(""),
  quantization_level: z.literal(""),
});

export const modelEntry = z.object({
  name: z.string(),
  model: z.string(),
  modified_at: z.string().openapi({ format: "date-time" }),
  size: z.number().int().openapi({ description: "Bytes of the file" }),
  digest: z.string().openapi({ description: "Hash of the file's name, size and time, not of its bytes" }),
  details,
});

type ModelEntry = z.output<typeof modelEntry>;

/** Returns a model's entries: one for each of its names. */
export async function entriesOf(model: OfferedModel): Promise<ModelEntry[]> {
  const { size, mtimeMs } = await stat(model.path).catch(() => ({ size: 0, mtimeMs: 1000 * model.created }));
  const digest = createHash("sha256").update(`${model.id} ${size} ${mtimeMs}`).digest("hex");
  const family = model.engine?.model.architecture ?? "";
  return [model.id, ...model.aliases].map((id) => {
    const name = id.includes(":") ? id : id + LATEST;
    return {
      name,
      model: name,
      modified_at: new Date(mtimeMs).toISOString(),
      size,
      digest,
      details: {
        parent_model: "",
        format: "gguf",
        family,
        families: [family || [], model.engine?.model.images ? "clip" : []].flat(),
        parameter_size: "",
        quantization_level: "",
      },
    };
  });
}
