import { basename, join } from "@std/path";
import { SHARD } from "../gguf/shards.ts";
import type { ModelSource } from "./slot.ts";

/** What a file or folder must be called to be offered: what is safe in URLs, logs and on terminals. */
const SAFE = /^[A-Za-z0-9][A-Za-z0-9._+-]{0,127}$/;
const ENDING = ".gguf";

/** Whether a file of this name is offered, where it lies in a folder of models. */
export function isModelFileName(name: string): boolean {
  return SAFE.test(name) && name.endsWith(ENDING) && name.length > ENDING.length;
}

/** What a model is called that nobody gave a name: its file's, without the ending and the number of a shard. */
export function modelName(path: string): string {
  const name = basename(path);
  return (name.endsWith(ENDING) ? name.slice(0, -ENDING.length) : name).replace(SHARD, "");
}

/**
 * The GGUF files directly in a folder, by their names without `.gguf`, and those one level below, as `folder/name`. Requests name
 * models by these ids only, so they reach no other file. A model in several files is one, by the first of them that is there, without
 * the number of a shard where no other has that name. Entries that cannot be read, and names that are not plain, are left out.
 */
export function modelsInFolder(folder: string): ModelSource[] {
  const found = entriesOf(folder).flatMap(({ name }) => {
    if (!SAFE.test(name)) return [];
    const path = join(folder, name);
    if (name.endsWith(ENDING)) return sourceOf(path, name);
    return entriesOf(path).flatMap((entry) => {
      if (!SAFE.test(entry.name) || !entry.name.endsWith(ENDING)) return [];
      return sourceOf(join(path, entry.name), `${name}/${entry.name}`);
    });
  });
  found.sort(byId);
  const ofModel = Map.groupBy(found, ({ id }) => id.replace(SHARD, "-*-of-$1")); // no name has a star
  const models = [...ofModel.values()].map(([first]) => first);
  const shortOf = ({ id }: ModelSource) => id.replace(SHARD, "");
  const alike = Map.groupBy(models, shortOf);
  return models.map((model) => {
    const short = shortOf(model);
    return alike.get(short)!.length === 1 ? { ...model, id: short } : model;
  }).sort(byId);
}

/** The GGUF files in the folder and one level below that are left out for their names, or their folders' names. */
export function modelsLeftOut(folder: string): string[] {
  return entriesOf(folder).filter(({ name }) => !name.startsWith(".")).flatMap(({ name }) => {
    if (name.endsWith(ENDING)) return SAFE.test(name) ? [] : [name];
    return entriesOf(join(folder, name))
      .filter((entry) => !entry.name.startsWith(".") && entry.name.endsWith(ENDING))
      .filter((entry) => !SAFE.test(name) || !SAFE.test(entry.name))
      .map((entry) => `${name}/${entry.name}`);
  }).sort();
}

function byId(a: ModelSource, b: ModelSource): number {
  return a.id < b.id ? -1 : 1;
}

/** Nothing where it is no folder, or cannot be read. */
function entriesOf(folder: string): Deno.DirEntry[] {
  try {
    return [...Deno.readDirSync(folder)];
  } catch {
    return [];
  }
}

/** Links are followed: the folder is the operator's. */
function sourceOf(path: string, name: string): ModelSource[] {
  try {
    const { isFile, mtime } = Deno.statSync(path);
    const created = Math.floor((mtime?.getTime() ?? 0) / 1000);
    return isFile ? [{ id: name.slice(0, -ENDING.length), aliases: [], path, created }] : [];
  } catch {
    return [];
  }
}
