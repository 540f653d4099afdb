import { basename, dirname, join } from "@std/path";
import { GgufError, quote } from "./errors.ts";
import type { GgufFile } from "./types.ts";

/**
 * Models split into several files by llama.cpp's splitter: NAME-00001-of-00003.gguf and so on. Each is a GGUF file with
 * its own tensors and the keys `split.no`, `split.count` and `split.tensors.count`. The first file also has the model's
 * metadata.
 */
const ENDING = ".gguf";

/** Suffix of a shard's name before `.gguf`: its number and the number of shards. */
export const SHARD = /-\d{5}-of-(\d{5})$/;

const COUNT = "split.count";
const NUMBER = "split.no";
const TENSORS = "split.tensors.count";

/** Returns whether the file is one of several shards. */
export function isShard({ metadata }: GgufFile): boolean {
  return metadata.has(COUNT) && metadata.getCount(COUNT) > 1;
}

/** Returns the paths of all shards of the model, in order; only `path` if it does not name a shard. */
export function shardPaths(path: string): string[] {
  const stem = basename(path, ENDING);
  const count = SHARD.exec(stem)?.[1];
  if (count === undefined || !path.endsWith(ENDING)) return [path];
  return Array.from({ length: Math.max(1, Number(count)) }, (_, i) => {
    const number = String(i + 1).padStart(5, "0");
    return join(dirname(path), `${stem.replace(SHARD, "")}-${number}-of-${count}${ENDING}`);
  });
}

/**
 * Returns the whole model for one of its shards. `open` opens the others. Throws GgufError(GGUF_SPLIT) if one is
 * missing or belongs to another model, and the errors of `open`.
 */
export async function joinShards(
  given: GgufFile,
  open: (path: string) => Promise<GgufFile>,
): Promise<GgufFile> {
  const count = given.metadata.getCount(COUNT);
  const number = given.metadata.getCount(NUMBER);
  const paths = shardPaths(given.path);
  if (paths.length !== count || basename(paths[number] ?? "") !== basename(given.path)) {
    const [shard, all] = [number + 1, count].map((number) => String(number).padStart(5, "0"));
    const detail =
      `this is file ${
        number + 1
      } of ${count} of a model: its name must end in "-${shard}-of-${all}.gguf", and ` +
      `those of the others likewise (got ${quote(basename(given.path))})`;
    throw new GgufError("GGUF_SPLIT", detail, { field: `key ${quote(NUMBER)}` });
  }
  paths[number] = given.path; // keeps the caller's spelling
  const shards: GgufFile[] = [];
  for (const [i, path] of paths.entries()) {
    shards.push(i === number ? given : await openShard(path, i, given, open));
  }
  return { ...shards[0], path: given.path, paths, fileSize: sum(shards), ...joinTensors(shards) };
}

async function openShard(
  path: string,
  number: number,
  given: GgufFile,
  open: (path: string) => Promise<GgufFile>,
): Promise<GgufFile> {
  const name = quote(basename(path));
  let file: GgufFile;
  try {
    file = await open(path);
  } catch (error) {
    if ((error as { code?: string } | null)?.code === "ENOENT") { // the same error code in Deno and Node
      const beside = quote(basename(given.path));
      throw new GgufError("GGUF_SPLIT", `the model's file ${name} is missing; it must lie beside ${beside}`);
    }
    if (error instanceof GgufError) error.message = `In ${name}: ${error.message}`;
    throw error;
  }
  const expected: [key: string, value: number | string | undefined][] = [
    [NUMBER, number],
    [COUNT, given.metadata.getCount(COUNT)],
    [TENSORS, given.metadata.getCount(TENSORS)],
  ];
  // Only the first shard must have the keys of the architecture and name. A shard with other values belongs to another
  // model.
  for (const key of ["general.architecture", "general.name"]) {
    const both = [file, given].map(({ metadata }) => metadata.entries.get(key));
    if (both.every((value) => typeof value === "string")) expected.push([key, both[1] as string]);
  }
  for (const [key, value] of expected) {
    const found = file.metadata.entries.get(key);
    if (found === value) continue;
    const got = found === undefined ? "nothing" : typeof found === "string" ? quote(found) : String(found);
    const must = typeof value === "string" ? quote(value) : value;
    const detail = `must be ${must} in ${name}, as ${
      quote(basename(given.path))
    } implies (got ${got}): is it of another model?`;
    throw new GgufError("GGUF_SPLIT", detail, { field: `key ${quote(key)}` });
  }
  return file;
}

function sum(shards: readonly GgufFile[]): number {
  return shards.reduce((bytes, { fileSize }) => bytes + fileSize, 0);
}

function joinTensors(shards: readonly GgufFile[]): Pick<GgufFile, "tensors" | "integers"> {
  const tensors = joined(shards.map(({ tensors }) => tensors));
  const integers = joined(shards.map(({ integers }) => integers));
  const expected = shards[0].metadata.getCount(TENSORS);
  const size = tensors.size + integers.size;
  if (size !== expected) {
    const detail = `must be the number of the tensors in all files, ${size} (got ${expected})`;
    throw new GgufError("GGUF_SPLIT", detail, { field: `key ${quote(TENSORS)}` });
  }
  return { tensors, integers };
}

function joined<Info extends { readonly path: string }>(
  tables: readonly ReadonlyMap<string, Info>[],
): Map<string, Info> {
  const all = new Map<string, Info>();
  for (const table of tables) {
    for (const [name, info] of table) {
      const other = all.get(name);
      if (other) {
        const files = [other.path, info.path].map((path) => quote(basename(path))).join(" and ");
        throw new GgufError("GGUF_SPLIT", `the tensor stands in ${files}`, {
          field: `tensor ${quote(name)}`,
        });
      }
      all.set(name, info);
    }
  }
  return all;
}
