import { needDeno, refuse, toCompyError } from "./errors.ts";
import type { Model } from "./model.ts";
import type { Server, ServerOptions } from "./server_types.ts";
import { checkOptions, type OptionTable } from "./options.ts";

const SERVER_OPTIONS: OptionTable<ServerOptions> = {
  apiKeys: "texts",
  allowedHosts: "any",
  corsOrigins: "texts",
  openHealth: "switch",
  pathPrefix: "text",
  strictParameters: "switch",
  data: "text",
  batchLines: "number",
  maxStorageBytes: "number",
  maxResponseBytes: "number",
  onError: "function",
};

/**
 * Returns a server with the HTTP APIs of OpenAI, Anthropic and llama-server over one or several models. Throws
 * CompyError.
 *
 * ```ts
 * import { Hono } from "hono";
 * import { createServer, loadModel } from "compy";
 *
 * await using model = await loadModel();
 * await using llm = await createServer(model);
 * const app = new Hono().mount("/llm", llm.fetch);
 * const answer = await app.request("http://localhost/llm/v1/chat/completions", {
 *   method: "POST",
 *   headers: { "content-type": "application/json" },
 *   body: JSON.stringify({ messages: [{ role: "user", content: "Who are you?" }], temperature: 0 }),
 * });
 * console.log((await answer.json()).choices[0].message.content);
 * ```
 */
export async function createServer(
  models: Model | readonly Model[],
  options: ServerOptions = {},
): Promise<Server> {
  checkOptions(options, SERVER_OPTIONS);
  if (options.data !== undefined) needDeno("data", "leave it out to serve without files and batches");
  const all = Array.isArray(models) ? models as readonly Model[] : [models as Model];
  const ids = all.map(({ info }) => info.id);
  const twice = ids.find((id, i) => ids.indexOf(id) !== i);
  if (all.length === 0) refuse("models", "must be a model, or an array of at least one", []);
  if (twice !== undefined) refuse("models", "must have different ids; load one with another `id`", twice);
  // The module is imported on demand, so that the library starts faster and works without network modules.
  const { openServer } = await import("./serving.ts");
  try {
    return await openServer(all, options);
  } catch (error) {
    throw toCompyError(error);
  }
}
