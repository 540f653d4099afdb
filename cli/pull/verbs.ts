import { listModels, type ModelList, removeModel, SHIPPED_LIST, type Stored } from "../../hub/mod.ts";
import { readSettings, settingsFlags } from "../shared/read_settings.ts";
import { path } from "../shared/settings.ts";
import { modelList } from "../shared/model_list.ts";
import { modelsFolder, shownFolder } from "../shared/models_folder.ts";
import { sizeInWords } from "../shared/sizes.ts";
import { asCalled, quoted } from "../shared/start.ts";
import { out } from "../shared/terminal.ts";
import { escaped, jsonLine } from "../shared/escape.ts";

/** The option for the folder of models, which `pull` and its verbs share. */
export const MODELS = path("DIR", {
  help:
    "the folder of models (default: COMPY_MODELS, or .compy/models in the checkout; installed: in the current folder)",
});
export const NAME_LIST = path("FILE", {
  help: 'a JSON file of your own names: {"NAME": "SOURCE", …} (or set COMPY_MODEL_LIST)',
});

/** Runs `pull list`. Returns the exit code. */
export async function listVerb(args: readonly string[]): Promise<number> {
  const flags = settingsFlags({ models: MODELS }, args);
  const folder = modelsFolder(readSettings({ models: MODELS }, flags).values.models);
  const stored = await listModels(folder);
  out(flags.json ? jsonLine(storedAsJson(folder, stored)) : storedAsText(folder, stored));
  return 0;
}

function storedAsText(folder: string, { models, unfinished }: Stored): string {
  const shown = shownFolder(folder);
  if (models.length + unfinished.length === 0) return `There are no models in ${escaped(shown)}\n`;
  const rows = [
    ...models.map(({ name, bytes, receipt }) => [name, sizeInWords(bytes), receipt?.source ?? "not pulled"]),
    ...unfinished.map(({ name, source, done, bytes }) => {
      const share = bytes === undefined
        ? sizeInWords(done)
        : `${Math.floor(100 * done / Math.max(1, bytes))} %`;
      return [
        name,
        share,
        `${source}, not finished: ${asCalled(`deno task pull ${quoted(source)}`)} resumes`,
      ];
    }),
  ];
  const widths = [0, 1].map((column) => Math.max(...rows.map((row) => row[column].length)));
  const lines = rows.map(([name, size, source]) =>
    `${name.padEnd(widths[0])}  ${size.padStart(widths[1])}  ${source}`
  );
  return `${[`${shown}:`, ...lines].map(escaped).join("\n")}\n`;
}

function storedAsJson(folder: string, { models, unfinished }: Stored) {
  return {
    folder,
    models: models.map(({ name, path, bytes, receipt }) => ({
      name,
      path,
      bytes,
      source: receipt?.source,
      commit: receipt?.commit,
      pulled: receipt?.pulled,
      files: receipt?.files.map(({ name, size, parts }) => ({
        name,
        bytes: size,
        sha256: parts.map((p) => p.sha256),
      })),
    })),
    unfinished: unfinished.map(({ name, source, done, bytes }) => ({
      name,
      source,
      bytes_done: done,
      bytes,
    })),
  };
}

/** Runs `pull names`. Returns the exit code. */
export async function namesVerb(args: readonly string[]): Promise<number> {
  const flags = settingsFlags({ list: NAME_LIST }, args);
  const own = await modelList(readSettings({ list: NAME_LIST }, flags).values.list);
  const list: ModelList = { ...SHIPPED_LIST, ...own };
  if (flags.json) {
    out(jsonLine(list));
    return 0;
  }
  const entries = Object.entries(list);
  const [names, sources] = [
    entries.map(([name]) => name.length),
    entries.map(([, { source }]) => source.length),
  ].map((lengths) => Math.max(...lengths));
  out(
    entries.map(([name, { source, about = "" }]) =>
      escaped(`${name.padEnd(names)}  ${source.padEnd(sources)}  ${about}`.trimEnd())
    ).join("\n") + "\n",
  );
  return 0;
}

/** Runs `pull rm NAME`. Returns the exit code. */
export async function rmVerb(args: readonly string[]): Promise<number> {
  const flags = settingsFlags({ models: MODELS }, args, { operands: ["NAME"] });
  const folder = modelsFolder(readSettings({ models: MODELS }, flags).values.models);
  const { name, bytes, unfinished } = await removeModel(folder, flags.operand("NAME"));
  const removed = unfinished ? "what had been downloaded of it" : sizeInWords(bytes);
  out(flags.json ? jsonLine({ name, bytes, unfinished }) : `${escaped(name)}: removed ${removed}\n`);
  return 0;
}
