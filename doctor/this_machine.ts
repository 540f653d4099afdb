import { dirname, join } from "@std/path";
import { statfs } from "node:fs/promises";
import process from "node:process";
import { examineGpu, instructionSets, measureLimits } from "../engine/load/machine.ts";
import { measureModel } from "../engine/load/load.ts";
import { modelName, modelsInFolder } from "../engine/models/folder.ts";
import { GrammarLibrary } from "../ffi/grammar.ts";
import { KernelLibrary } from "../ffi/library.ts";
import { occupantOf } from "./occupant.ts";
import { permitted, readText } from "./read_text.ts";
import type { Memory, ModelNeeds, Wanted, World } from "./types.ts";

/** Returns this process's machine and installation. */
export function thisMachine(): World {
  return {
    os: Deno.build.os,
    arch: Deno.build.arch,
    denoVersion: Deno.version.deno,
    threads: navigator.hardwareConcurrency,
    readText,
    load,
    memory,
    permitted,
    openKernels: () => KernelLibrary.open(),
    openGrammars: () => GrammarLibrary.open(),
    instructionSets,
    measureLimits,
    examineGpu,
    measureModel: modelNeeds,
    modelsIn: (folder) => modelsInFolder(folder).map(({ path }) => path),
    occupantOf,
    tryWriting,
    isLocked,
    freeSpace,
  };
}

function load(): number | undefined {
  if (Deno.build.os === "windows" || !permitted({ name: "sys", kind: "loadavg" })) return undefined;
  return Deno.loadavg()[0];
}

function memory(): Memory | undefined {
  if (!permitted({ name: "sys", kind: "systemMemoryInfo" })) return undefined;
  const { total, available, swapTotal, swapFree } = Deno.systemMemoryInfo();
  const limit = Deno.build.os === "linux" ? process.constrainedMemory() : 0;
  return {
    total,
    available,
    limit: limit > 0 && limit < total ? limit : Infinity,
    swapped: swapTotal - swapFree,
  };
}

/** Measures a model as the server does before loading it. */
async function modelNeeds(model: string, wanted: Wanted): Promise<ModelNeeds> {
  const { backend, contextLength, parallel, kvBytes, kvType } = wanted;
  const kvShare = parallel === undefined ? 1 : undefined;
  const options = { model, backend, contextLength, parallel, kvBytes, kvShare, kvType, spareBytes: 0 };
  const measured = await measureModel(options);
  const { weights, activations, states, kv } = measured.memory;
  const isEncoder = kv + states === 0; // an encoder keeps nothing between steps
  return {
    name: modelName(model),
    bytes: weights + activations + states + kv,
    tokenBytes: isEncoder ? undefined : measured.tokenBytes,
  };
}

async function tryWriting(folder: string): Promise<void> {
  await Deno.mkdir(folder, { recursive: true, mode: 0o700 });
  await Deno.remove(await Deno.makeTempFile({ dir: folder, prefix: "writable-" }));
}

/** Returns whether a server holds the lock on its data folder: tries the lock and releases it. */
async function isLocked(folder: string): Promise<boolean> {
  try {
    using file = await Deno.open(join(folder, "lock"), { read: true, write: true });
    return !await file.tryLock(true);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return false;
    throw error;
  }
}

/** Returns the free bytes of the file system on which the folder is, or will be. */
async function freeSpace(folder: string): Promise<number | undefined> {
  if (!permitted({ name: "sys", kind: "statfs" })) return undefined;
  try {
    const { bavail, bsize } = await statfs(folder);
    return bavail * bsize;
  } catch {
    const parent = dirname(folder);
    return parent === folder ? undefined : await freeSpace(parent);
  }
}
