import { join } from "@std/path";
import { z } from "zod";
import { modelsInFolder } from "../engine/models/folder.ts";
import { syncFolder, writeWhole } from "./disk.ts";
import { PullError } from "./errors.ts";
import { checkModelName, isSafePath, quote } from "./names.ts";
import { listUnfinished, removeUnfinished, type UnfinishedReport } from "./unfinished.ts";

/** Folder of receipts for pulled models. Models cannot have this name. */
const FOLDER = ".pulled";
/** Name of the file that marks a download whose checked files are being moved. */
const PLACING = "placing.json";

const RECEIPT = z.object({
  source: z.string(),
  commit: z.string().optional(),
  pulled: z.string(),
  files: z.array(z.object({
    name: z.string().refine((name) => isSafePath(name) && !name.includes("/")),
    size: z.number(),
    /** The parts of the file, usually one. `promised`: whether the hash was known before the download. */
    parts: z.array(z.object({ path: z.string(), sha256: z.string(), promised: z.boolean() })).min(1),
  })).min(1),
});

/** A model's origin, and its checked hashes. */
export type Receipt = z.infer<typeof RECEIPT>;

/** A model in the folder. */
export interface StoredModel {
  /** The model's name for `--model` and requests. */
  readonly name: string;
  /** Path of the model's first file. */
  readonly path: string;
  /** Bytes of all files of the model. */
  readonly bytes: number;
  /** The model's receipt; undefined for a model that was not pulled. */
  readonly receipt: Receipt | undefined;
}

/** Contents of a folder of models. */
export interface Stored {
  readonly models: readonly StoredModel[];
  readonly unfinished: readonly UnfinishedReport[];
}

/** Lists a folder's models, pulled or not, and its unfinished downloads. */
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

/** Returns the receipt of a pulled model; undefined for other models. */
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
 * Moves a download's files into the folder of models, replacing files of the same names, and writes the
 * receipt. After a crash, `finishPlacing` completes it.
 */
export async function place(folder: string, from: string, name: string, receipt: Receipt): Promise<void> {
  for (const { name: file } of receipt.files) {
    using opened = await Deno.open(join(from, file), { write: true });
    await opened.sync();
  }
  await writeWhole(join(from, PLACING), JSON.stringify(receipt));
  await finishPlacing(folder, from, name);
}

/** Completes an interrupted move of a download's files, if any. */
export async function finishPlacing(folder: string, from: string, name: string): Promise<void> {
  const receipt = await readReceiptFile(join(from, PLACING));
  if (!receipt) return;
  for (const { name: file } of receipt.files) {
    try {
      await Deno.rename(join(from, file), join(folder, file));
    } catch (error) {
      if (!(error instanceof Deno.errors.NotFound)) throw error; // the file is already moved
    }
  }
  await syncFolder(folder);
  const before = await readReceipt(folder, name);
  await Deno.mkdir(join(folder, FOLDER), { recursive: true });
  await writeWhole(join(folder, FOLDER, `${name}.json`), JSON.stringify(receipt, null, 2));
  await Deno.remove(join(from, PLACING));
  // Files of the old version whose names the new version does not use are removed.
  const kept = new Set(receipt.files.map(({ name }) => name));
  for (const { name: file } of before?.files ?? []) {
    if (!kept.has(file)) await removeFile(join(folder, file));
  }
}

/** Returns whether all files of a receipt exist with their sizes. */
export async function isComplete(folder: string, { files }: Receipt): Promise<boolean> {
  const found = await Promise.all(files.map(async ({ name, size }) => {
    const info = await Deno.stat(join(folder, name)).catch(() => undefined);
    return info?.isFile === true && info.size === size;
  }));
  return found.every(Boolean);
}

/** The removed model or download. */
export interface Removed {
  readonly name: string;
  readonly bytes: number;
  /** Whether an unfinished download was removed, and not a model. */
  readonly unfinished: boolean;
}

/** Removes a pulled model, or an unfinished download. Throws PullError for any other file. */
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
