import { basename, join } from "@std/path";
import { SHARD } from "../gguf/shards.ts";
import type { ModelSource } from "./slot.ts";

/** Names of model files and folders that a server offers: safe in URLs, logs and terminals. */
const SAFE = /^[A-Za-z0-9][A-Za-z0-9._+-]{0,127}$/;
const ENDING = ".gguf";

/** Whether a file of this name holds the vision tower of a model, as llama.cpp's tools name it. */
export function isTowerName(name: string): boolean {
  return name.endsWith(ENDING) && /mmproj/i.test(name);
}

/** Returns the name of the file with the vision tower of the model of this name. */
export function towerName(model: string): string {
  return `mmproj-${model}${ENDING}`;
}

/** Whether a folder of models offers a file of this name. */
export function isModelFileName(name: string): boolean {
  return SAFE.test(name) && !isTowerName(name) && name.endsWith(ENDING) && name.length > ENDING.length;
}

/** Returns the default name of a model: its file's name without the ending and shard number. */
export function modelName(path: string): string {
  const name = basename(path);
  return (name.endsWith(ENDING) ? name.slice(0, -ENDING.length) : name).replace(SHARD, "");
}

/**
 * Returns the GGUF files in a folder, named without `.gguf`, and those one level below, as `folder/name`.
 *
 * Requests use only these ids, so they cannot reach other files. The shards of a split model count as one
 * model, represented by the first existing shard. The model's id is the shard's name without the shard number, unless
 * another model has this id. Unreadable entries and unsafe names are left out.
 */
export function modelsInFolder(folder: string): ModelSource[] {
  const found = entriesOf(folder).flatMap(({ name }) => {
    if (!SAFE.test(name)) return [];
    const path = join(folder, name);
    if (isTowerName(name)) return [];
    if (name.endsWith(ENDING)) return sourceOf(path, name);
    return entriesOf(path).flatMap((entry) => {
      if (!SAFE.test(entry.name) || !entry.name.endsWith(ENDING) || isTowerName(entry.name)) return [];
      return sourceOf(join(path, entry.name), `${name}/${entry.name}`);
    });
  });
  found.sort(byId);
  const ofModel = Map.groupBy(found, ({ id }) => id.replace(SHARD, "-*-of-$1")); // names never contain a star
  const models = [...ofModel.values()].map(([first]) => first);
  const shortOf = ({ id }: ModelSource) => id.replace(SHARD, "");
  const alike = Map.groupBy(models, shortOf);
  return models.map((model) => {
    const short = shortOf(model);
    return alike.get(short)!.length === 1 ? { ...model, id: short } : model;
  }).sort(byId);
}

/** Returns the GGUF files in the folder and one level below whose own or folder's name is unsafe. */
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

/** Returns the folder's entries; none where it is not a folder or cannot be read. */
function entriesOf(folder: string): Deno.DirEntry[] {
  try {
    return [...Deno.readDirSync(folder)];
  } catch {
    return [];
  }
}

/** Returns the model at a path, if it is a file. It follows links: the operator owns the folder. */
function sourceOf(path: string, name: string): ModelSource[] {
  try {
    const { isFile, mtime } = Deno.statSync(path);
    const created = Math.floor((mtime?.getTime() ?? 0) / 1000);
    return isFile ? [{ id: name.slice(0, -ENDING.length), aliases: [], path, created }] : [];
  } catch {
    return [];
  }
}
