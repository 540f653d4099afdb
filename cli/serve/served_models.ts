import { CompyError } from "../../lib/errors.ts";
import { type Alias, openPool as openModels, type PoolOptions } from "../../lib/pool.ts";
import type { GivenTemplate } from "../../lib/model.ts";
import { readChatTemplate } from "../shared/chat_template.ts";
import { UsageError } from "../shared/flags.ts";
import { modelPath } from "../shared/model.ts";
import { inFlags } from "../shared/words.ts";
import type { ServeSettings } from "./serve_settings.ts";

/** Returns whether the server loads models on request instead of one at its start. */
export function hasSeveral({ values: { model, models, memoryMb, idleUnload } }: ServeSettings): boolean {
  return model.length > 1 || [models, memoryMb, idleUnload].some((value) => value !== undefined);
}

/** Returns the aliases of a server's single model. */
export function aliasesOfOne({ values: { alias } }: ServeSettings, id: string): string[] {
  return readAliases(alias, [id]).map(({ name }) => name);
}

/** Returns the chat template that replaces a single model's. Throws if it cannot be used. */
export function templateOfOne(
  { values: { chatTemplate: given } }: ServeSettings,
  id: string,
): GivenTemplate | undefined {
  if (given.length === 0) return undefined;
  if (given.length > 1) throw new UsageError("--chat-template may be given once with one model");
  return readChatTemplate(given[0].startsWith(`${id}=`) ? given[0].slice(id.length + 1) : given[0]);
}

/** Returns the chat templates that replace those of models, by id. Throws if one cannot be used. */
export function templatesOf({ values: { chatTemplate } }: ServeSettings): Map<string, GivenTemplate> {
  const templates = new Map<string, GivenTemplate>();
  for (const given of chatTemplate) {
    const [, model, file] = /^([^=]+)=(.+)$/s.exec(given) ?? [];
    if (model === undefined) {
      throw new UsageError(`--chat-template "${given}" must be MODEL=FILE with several models`);
    }
    if (templates.has(model)) {
      throw new UsageError(`--chat-template "${given}" names the same model as another --chat-template`);
    }
    templates.set(model, readChatTemplate(file));
  }
  return templates;
}

/**
 * Opens several models that share a memory budget. Throws if a named file cannot be read, or two models have
 * the same name.
 */
export async function openPool(
  settings: ServeSettings,
  host: Pick<PoolOptions, "load" | "reloads" | "note" | "describe" | "chatTemplates" | "alsoNamed">,
) {
  const { values: { model, models: folder, alias, memoryMb, idleUnload } } = settings;
  if (host.load.backend === "auto") {
    throw new UsageError(
      "--backend auto measures one model at the start; with several, give cpu, wasm or webgpu",
    );
  }
  if (host.load.draft !== undefined) {
    throw new UsageError(
      "--draft drafts for one model: leave it out with several, or serve one with --model",
    );
  }
  if ((host.load.lora ?? []).length > 0) {
    throw new UsageError("--lora adapts one model: leave it out with several, or serve one with --model");
  }
  if (host.load.mmproj !== undefined) {
    throw new UsageError(
      "--mmproj is the tower of one model: with several, put each model's tower beside it",
    );
  }
  try {
    return await openModels({
      ...host,
      files: model.map(modelPath),
      folder,
      aliases: (ids) => {
        const other = [...host.chatTemplates?.keys() ?? []].find((id) => !ids.includes(id));
        if (other !== undefined && folder === undefined) {
          throw new UsageError(
            `--chat-template "${other}=…" names an unknown model; the models are ${ids.join(", ")}`,
          );
        }
        return readAliases(alias, ids, folder !== undefined);
      },
      memoryBytes: memoryMb === undefined ? undefined : memoryMb * 1e6,
      idleMs: idleUnload === undefined ? undefined : 1000 * idleUnload,
    });
  } catch (error) {
    throw error instanceof CompyError && error.code === "invalid_request"
      ? new UsageError(inFlags(error))
      : error;
  }
}

/**
 * Reads `NAME=MODEL`, or a bare name for the only model. Throws for an alias of an unknown model, unless that
 * model may still appear.
 */
function readAliases(given: readonly string[], ids: readonly string[], mayCome = false): Alias[] {
  const taken = new Set<string>();
  return given.map((text) => {
    const at = text.indexOf("=");
    if (at < 0 && (ids.length !== 1 || mayCome)) {
      throw new UsageError(`--alias "${text}" must be NAME=MODEL with several models`);
    }
    const [name, model] = at < 0 ? [text, ids[0]] : [text.slice(0, at), text.slice(at + 1)];
    if (name === "" || name.length > 256 || ids.includes(name)) {
      throw new UsageError(`--alias "${text}" must give a name of 1 to 256 characters that no model has`);
    }
    if (!mayCome && !ids.includes(model)) {
      throw new UsageError(`--alias "${text}" names an unknown model; the models are ${ids.join(", ")}`);
    }
    if (taken.has(name)) throw new UsageError(`--alias "${text}" gives the same name as another --alias`);
    taken.add(name);
    return { name, model };
  });
}
