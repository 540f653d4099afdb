import { z } from "@hono/zod-openapi";
import type { Engine } from "../../engine/mod.ts";
import { boundedArray, checkTokenIds, documented, LIMITS, PROMPT_TEXT, TOKEN_ID } from "../core/fields.ts";
import { promptTokens, type RunOptions } from "../generation/generation.ts";
import { generation } from "../generation/generation_endpoint.ts";
import { dataUrl, IMAGE } from "../generation/image_urls.ts";
import { readImages } from "../generation/images.ts";
import { llamaServerAnswer, llamaServerEvent } from "./answer.ts";
import { checkLlamaServer, formsOf, llamaServerFields, prepareLlamaServer } from "./request.ts";
import { paced } from "../core/paced.ts";

/** The mark of an image in a text, as llama.cpp's multimodal library names it. */
const MEDIA = "<__media__>";

const withImages = z.object({
  prompt_string: z.string().openapi({ description: `A text with ${MEDIA} in the place of each image` }),
  multimodal_data: boundedArray(z.string(), 0, LIMITS.contentParts).nullish().openapi({
    description: "Images in base64, in order",
  }),
}).superRefine(({ prompt_string, multimodal_data }, ctx) => {
  const [places, images] = [prompt_string.split(MEDIA).length - 1, multimodal_data?.length ?? 0];
  if (places === images) return;
  const message = `must have ${MEDIA} once for each of the ${images} images (got ${places})`;
  ctx.addIssue({ code: "custom", path: ["prompt_string"], message, input: prompt_string });
});

const plain = documented(
  z.custom<string | number[]>(
    (value) => typeof value === "string" || Array.isArray(value) && value.length > 0,
    {
      error: "must be a text, an array of token ids, or an object with prompt_string and multimodal_data",
      abort: true,
    },
  ).superRefine((value, ctx) => {
    if (typeof value !== "string") checkTokenIds(value, ctx);
  }),
  { type: ["string", "array"], oneOf: [PROMPT_TEXT, { type: "array", items: TOKEN_ID, minItems: 1 }] },
);

const prompt = z.union([withImages, plain]);

const request = z.object({ ...llamaServerFields, prompt }).superRefine(checkLlamaServer)
  .openapi("LlamaServerCompletionRequest");

/** Endpoint /completion, in llama-server's format. */
export const completion = generation({
  path: "/completion",
  operationId: "createLlamaServerCompletion",
  summary: "Continue a text, or token ids, in llama-server's format",
  request,
  answer: llamaServerAnswer,
  chunk: { name: "LlamaServerEvent", schema: llamaServerEvent, withoutDone: true },
  example: { prompt: "Once upon a time", n_predict: 12, temperature: 0 },
  forms: formsOf,
  prepare: async (engine, body, options) => {
    const { text, images } = await readPrompt(engine, body.prompt, options);
    const tokens = await paced(() => promptTokens(engine, text));
    return await prepareLlamaServer(engine, body, options, { tokens, images, truncated: false });
  },
});

/** Returns the prompt with the model's own text for each image, and the decoded images. */
async function readPrompt(engine: Engine, given: z.output<typeof prompt>, options: RunOptions) {
  if (typeof given === "string" || Array.isArray(given)) return { text: given };
  const { prompt_string, multimodal_data } = given;
  const content = (multimodal_data ?? []).map((base64, i) => ({
    type: IMAGE,
    image_url: dataUrl(base64),
    param: `prompt.multimodal_data[${i}]`,
  }));
  const { images } = await readImages(engine, [{ role: "user", content }], options);
  return { text: prompt_string.replaceAll(MEDIA, () => engine.model.imageText ?? ""), images };
}
