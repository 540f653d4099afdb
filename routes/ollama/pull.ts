import { z } from "@hono/zod-openapi";
import type { Caller } from "../access/caller.ts";
import { abortWhenLeft } from "../core/client.ts";
import type { AppContext, ModelPulls } from "../core/context.ts";
import { endpoint } from "../core/endpoint.ts";
import { ApiError } from "../core/errors.ts";
import { text } from "../core/fields.ts";
import { eventStream } from "../core/sse.ts";
import { OLLAMA_ERRORS } from "./errors.ts";

const name = text(1, 256).optional();

const request = z.object({
  model: name.openapi({
    description: "hf.co/OWNER/REPO, hf.co/OWNER/REPO:QUANTIZATION, or a name of the list",
  }),
  name: name.openapi({ description: "Older than model" }),
  stream: z.boolean().nullish().openapi({ description: "Default true" }),
}).openapi("OllamaPullRequest", { anyOf: [{ required: ["model"] }, { required: ["name"] }] });

const row = z.object({
  status: z.string(),
  digest: z.string().optional(),
  total: z.number().int().optional(),
  completed: z.number().int().optional(),
}).openapi("OllamaPull");

const BEGIN = { status: "pulling manifest" };
const END = { status: "success" };

/**
 * Endpoint /api/pull: succeeds for a model of the server, and downloads others if the operator and the key allow it.
 */
export const pull = endpoint({
  method: "post",
  path: "/api/pull",
  operationId: "ollamaPull",
  tag: "Ollama",
  summary: "Download a model that the server lacks from the hub, if the server allows it",
  body: request,
  example: { model: "hf.co/Qwen/Qwen3-0.6B-GGUF:Q8_0" },
  answer: row,
  events: { name: "OllamaPull", schema: row, lines: true },
  errors: OLLAMA_ERRORS,
  answers: "The progress as JSON lines, unless `stream` is false; a failure is a line with an `error`",
  refusals: {
    403: "The server downloads no models for requests, or not for this key",
    429: "Too many downloads wait",
    502: "The hub's answer is invalid",
    507: "The disk is full",
  },
}, async ({ body, raw, caller }, { models, pulls, limits, report }) => {
  const model = body.model ?? body.name;
  const isHere = model !== undefined && models.find(model) !== undefined;
  const downloads = isHere ? undefined : downloadsFor(caller, pulls);
  if (model === undefined) {
    throw new ApiError(400, "missing_required_parameter", 'Missing "model"', { param: "model" });
  }
  const abort = abortWhenLeft(raw);
  async function* rows() {
    yield BEGIN;
    if (downloads) yield* downloads.pull(model!, abort.signal);
    yield END;
  }
  if (body.stream === false) {
    for await (const _ of rows());
    return END;
  }
  return await eventStream(rows(), abort, limits, report, {
    lines: true,
    named: false,
    done: false,
    waiting: () => BEGIN,
    failure: (error) => [OLLAMA_ERRORS.body(error)],
  });
});

function downloadsFor(caller: Caller, pulls: AppContext["pulls"]): ModelPulls {
  if (!pulls) {
    throw new ApiError(403, "pull_not_allowed", [
      "This server downloads no models for requests; ",
      { allowPull: undefined },
      " allows it. GET /api/tags lists the models that it has",
    ]);
  }
  if (!caller.mayPull) {
    const message =
      `The API key "${caller.name}" may not download models; its "pull" in the key file allows it`;
    throw new ApiError(403, "pull_not_allowed", message);
  }
  return pulls;
}
