import { join } from "@std/path";
import { z } from "zod";
import { modelsInFolder } from "../engine/models/folder.ts";
import { syncFolder, writeWhole } from "./disk.ts";
import { PullError } from "./errors.ts";
import { checkModelName, isSafePath, quote } from "./names.ts";
import { listUnfinished, removeUnfinished, type UnfinishedReport } from "./unfinished.ts";

/** Where it is written what was pulled; no model is called so. */
const FOLDER = ".pulled";
/** In a download's folder: all is checked, and its files are being moved. */
const PLACING = "placing.json";

const RECEIPT = z.object({
  source: z.string(),
  commit: z.string().optional(),
  pulled: z.string(),
  files: z.array(z.object({
    name: z.string().refine((name) => isSafePath(name) && !name.includes("/")),
    size: z.number(),
    /** What was put together: of most files one. `promised`: the hash was known before. */
    parts: z.array(z.object({ path: z.string(), sha256: z.string(), promised: z.boolean() })).min(1),
  })).min(1),
});

/** Where a model came from, and what was checked of it. */
export type Receipt = z.infer<typeof RECEIPT>;

/** A model in the folder. */
export interface StoredModel {
  /** What `--model` and requests call it. */
  readonly name: string;
  /** Of its first file. */
  readonly path: string;
  /** Bytes of all files. */
  readonly bytes: number;
  /** Undefined for a model that was put there by somebody else. */
  readonly receipt: Receipt | undefined;
}

/** What is in a folder of models. */
export interface Stored {
  readonly models: readonly StoredModel[];
  readonly unfinished: readonly UnfinishedReport[];
}

/** Lists a folder of models: what was pulled, what else is there, and downloads that were begun. */
export async function listModels(folder: string): Promise<Stored> {
  const models = await Promise.all(
    modelsInFolder(folder).map(async ({ id, path }) => {
      const receipt = await readReceipt(folder, id);
      const paths = receipt ? receipt.files.map(({ name }) => join(folder, name)) : [path];
      const sizes = await Promise.all(
        paths.map(async (path) => (await Deno.stat(path).catch(() => undefined))?.size ?? 0),
      );
      return { name: id, path, bytes: sizes.reduce((a, b) => a + b, 0), receipt };
    }),
  );
  return { models, unfinished: await listUnfinished(folder) };
}

/** The receipt of a model that was pulled; undefined for others. */
export async function readReceipt(folder: string, name: string): Promise<Receipt | undefined> {
  return await readReceiptFile(join(folder, FOLDER, `${name}.json`));
}

async function readReceiptFile(path: string): Promise<Receipt | undefined> {
  try {
    return RECEIPT.parse(JSON.parse(await Deno.readTextFile(path)));
  } catch {
    return undefined;
  }
}

/**
 * Moves a download's files into the folder of models, where they replace those of the same names, and writes the receipt. After a
 * crash in between, `finishPlacing` ends it.
 */
export async function place(folder: string, from: string, name: string, receipt: Receipt): Promise<void> {
  for (const { name: file } of receipt.files) {
    using opened = await Deno.open(join(from, file), { write: true });
    await opened.sync();
  }
  await writeWhole(join(from, PLACING), JSON.stringify(receipt));
  await finishPlacing(folder, from, name);
}

/** Ends the moving of a download's files that was begun; nothing where none was. */
export async function finishPlacing(folder: string, from: string, name: string): Promise<void> {
  const receipt = await readReceiptFile(join(from, PLACING));
  if (!receipt) return;
  for (const { name: file } of receipt.files) {
    try {
      await Deno.rename(join(from, file), join(folder, file));
    } catch (error) {
      if (!(error instanceof Deno.errors.NotFound)) throw error; // moved already
    }
  }
  await syncFolder(folder);
  const before = await readReceipt(folder, name);
  await Deno.mkdir(join(folder, FOLDER), { recursive: true });
  await writeWhole(join(folder, FOLDER, `${name}.json`), JSON.stringify(receipt, null, 2));
  await Deno.remove(join(from, PLACING));
  // Of a version in other files.
  const kept = new Set(receipt.files.map(({ name }) => name));
  for (const { name: file } of before?.files ?? []) {
    if (!kept.has(file)) await removeFile(join(folder, file));
  }
}

/** Whether all files of a receipt are there, as long as they were. */
export async function isComplete(folder: string, { files }: Receipt): Promise<boolean> {
  const found = await Promise.all(files.map(async ({ name, size }) => {
    const info = await Deno.stat(join(folder, name)).catch(() => undefined);
    return info?.isFile === true && info.size === size;
  }));
  return found.every(Boolean);
}

/** What was removed. */
export interface Removed {
  readonly name: string;
  readonly bytes: number;
  /** Whether it was a download that had not been finished. */
  readonly unfinished: boolean;
}

/** Removes a model that was pulled, or a download that was begun. Throws PullError for others. */
export async function removeModel(folder: string, given: string): Promise<Removed> {
  const name = checkModelName(given);
  const stored = await listModels(folder);
  const begun = stored.unfinished.find((other) => other.name === name);
  const hadFolder = await removeUnfinished(folder, name);
  const receipt = await readReceipt(folder, name);
  if (receipt) {
    const bytes = receipt.files.reduce((sum, { size }) => sum + size, 0);
    for (const file of receipt.files) await removeFile(join(folder, file.name));
    await removeFile(join(folder, FOLDER, `${name}.json`));
    return { name, bytes, unfinished: false };
  }
  if (hadFolder) return { name, bytes: begun?.done ?? 0, unfinished: true };
  if (stored.models.some((model) => model.name === name)) {
    throw new PullError(
      "PULL_EXISTS",
      `${quote(name)} was not pulled: remove its files in "${folder}" yourself`,
    );
  }
  const names = [...stored.models, ...stored.unfinished].map(({ name }) => name);
  const there = names.length === 0 ? "there are none" : `there are ${names.join(", ")}`;
  throw new PullError("PULL_NOT_FOUND", `"${folder}" has no model ${quote(name)}; ${there}`);
}

async function removeFile(path: string): Promise<void> {
  try {
    await Deno.remove(path);
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
}
