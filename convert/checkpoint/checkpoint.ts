import { join } from "@std/path";
import { quote } from "../../engine/gguf/errors.ts";
import { ConvertError, refuse } from "../errors.ts";
import { inWords, isObject, readJson } from "./json.ts";
import { readFully, readSafetensors } from "./safetensors.ts";
import { type SafeTensor } from "./tensors.ts";

const INDEX = "model.safetensors.index.json";
const MAX_INDEX_BYTES = 16 * 1024 * 1024;
/** Maximum number of shards, because all stay open. The largest published checkpoints have about 200. */
const MAX_SHARDS = 512;
/** Maximum number of tensors, as in the engine's limit for a GGUF file. */
const MAX_TENSORS = 131_072;

/** The tensors of all safetensors files of a folder, checked. The files stay open until disposal. */
export class Checkpoint implements Disposable {
  readonly tensors = new Map<string, SafeTensor>();
  readonly #files = new Map<string, Deno.FsFile>();

  private constructor(readonly folder: string) {}

  /**
   * Opens the file `only`, or else the files that the folder's index names, or else its `model*.safetensors`. Throws
   * ConvertError when a file is missing, broken or contradicts the index.
   */
  static async open(folder: string, only?: string): Promise<Checkpoint> {
    const index = only === undefined ? await readIndex(folder) : undefined;
    const found = index ? index.values() : only === undefined ? await findShards(folder) : [only];
    const names = new Set(found);
    if (index) await refuseStaleIndex(folder, names);
    if (names.size > MAX_SHARDS) {
      refuse(folder, undefined, `must have at most ${MAX_SHARDS} files of weights (got ${names.size})`);
    }
    const checkpoint = new Checkpoint(folder);
    try {
      for (const name of names) checkpoint.#add(join(folder, name));
      if (index) checkpoint.#checkIndex(index);
      return checkpoint;
    } catch (error) {
      checkpoint[Symbol.dispose]();
      throw error;
    }
  }

  /** Fills `into` with the tensor's bytes from `offset` on. The range must lie within the tensor. */
  read(tensor: SafeTensor, offset: number, into: Uint8Array): void {
    if (tensor.compute) return tensor.compute(offset, into);
    readFully(tensor.file, this.#files.get(tensor.file)!, tensor.offset + offset, into);
  }

  [Symbol.dispose](): void {
    for (const file of this.#files.values()) file.close();
    this.#files.clear();
  }

  #add(path: string): void {
    const file = openShard(path);
    this.#files.set(path, file);
    for (const tensor of readSafetensors(path, file)) {
      const other = this.tensors.get(tensor.name);
      if (other) refuse(path, `tensor ${quote(tensor.name)}`, `it is in ${other.file} too`);
      this.tensors.set(tensor.name, tensor);
      if (this.tensors.size > MAX_TENSORS) {
        refuse(path, undefined, `with the files before it, there are more than ${MAX_TENSORS} tensors`);
      }
    }
  }

  #checkIndex(index: ReadonlyMap<string, string>): void {
    for (const [name, shard] of index) {
      const found = this.tensors.get(name)?.file;
      if (found === join(this.folder, shard)) continue;
      const detail = `must be in ${shard} (found in ${found ?? "no file"}): the index is stale`;
      refuse(join(this.folder, INDEX), `tensor ${quote(name)}`, detail);
    }
  }
}

function openShard(path: string): Deno.FsFile {
  try {
    return Deno.openSync(path);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) {
      throw new ConvertError(`Cannot find ${path}: the checkpoint is incomplete; download this file too`);
    }
    throw error;
  }
}

/** Returns each tensor's file name; undefined without an index. */
async function readIndex(folder: string): Promise<Map<string, string> | undefined> {
  const path = join(folder, INDEX);
  const json = await readJson(path, MAX_INDEX_BYTES);
  if (json === undefined) return undefined;
  const map = isObject(json) ? json.weight_map : undefined;
  if (!isObject(map)) refuse(path, `key "weight_map"`, `must be an object (got ${inWords(map)})`);
  const index = new Map<string, string>();
  for (const [name, shard] of Object.entries(map)) {
    // The index is untrusted, so only plain names are allowed, which cannot reach outside the folder.
    if (typeof shard !== "string" || !/^[\w.-]+\.safetensors$/.test(shard)) {
      const detail = `its file must have a plain name that ends in .safetensors (got ${inWords(shard)})`;
      refuse(path, `tensor ${quote(name)}`, detail);
    }
    index.set(name, shard);
  }
  return index;
}

/** Throws ConvertError if the index names missing files, but the folder has a complete set of other files. */
async function refuseStaleIndex(folder: string, indexed: ReadonlySet<string>): Promise<void> {
  const present = await listShards(folder);
  const missing = [...indexed].find((name) => !present.has(name));
  const others = withSiblings([...present].filter((name) => isModel(name) && !indexed.has(name)));
  if (missing === undefined || others.size === 0 || ![...others].every((name) => present.has(name))) return;
  const found = [...others].slice(0, 3).map(quote).join(", ") + (others.size > 3 ? ", …" : "");
  const detail = `the index is stale: it names ${quote(missing)}, which is missing, but the folder has the ` +
    `complete weights ${found}; remove the index, or download the checkpoint again`;
  refuse(join(folder, INDEX), undefined, detail);
}

async function listShards(folder: string): Promise<Set<string>> {
  const names = new Set<string>();
  for await (const { name } of Deno.readDir(folder)) {
    if (name.endsWith(".safetensors")) names.add(name);
  }
  return names;
}

const isModel = (name: string) => name.startsWith("model");

async function findShards(folder: string): Promise<Set<string>> {
  const names = [...await listShards(folder)].filter(isModel);
  if (names.length === 0) {
    throw new ConvertError(`Cannot convert ${folder}: there is no model*.safetensors in it`);
  }
  return withSiblings(names);
}

/**
 * Returns the names with those of their other shards. A name contains the count, as model-00001-of-00003.safetensors.
 */
function withSiblings(found: Iterable<string>): Set<string> {
  const names = new Set(found);
  for (const name of found) {
    const parts = /^(.*-)(\d{5})-of-(\d{5})\.safetensors$/.exec(name);
    const count = Math.min(Number(parts?.[3] ?? 0), MAX_SHARDS + 1);
    for (let i = 1; i <= count; i++) {
      names.add(`${parts![1]}${String(i).padStart(5, "0")}-of-${parts![3]}.safetensors`);
    }
  }
  return new Set([...names].sort());
}
