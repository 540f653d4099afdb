import { CpuBackend, type CpuNode } from "../backend/cpu/cpu.ts";
import { EngineError, wordingOf } from "../api/errors.ts";
import { NodeEngines } from "../loop/node_engines.ts";
import { freeMemory } from "./free_memory.ts";
import { type LoadedEngine, type MeasuredModel, measureModel } from "./load.ts";
import { MemoryError } from "./memory_error.ts";
import type { LoadOptions } from "./options.ts";

/** Processors must have numbers below this. */
const MAX_PROCESSORS = 1024;

/** Nodes are of about one size if the smallest has at least this share of the largest's cores. */
const EVEN = 0.75;

/**
 * Measures a model as measureModel does. On several NUMA nodes, the model gets one engine per node. Each engine has its
 * own copy of the weights, so that no step reads another node's memory. Throws EngineError for invalid nodes too.
 */
export async function measureOnNodes(given: LoadOptions): Promise<MeasuredModel> {
  const { numa = "auto", backend } = given;
  const isNative = backend === undefined ? !CpuBackend.missing() : backend === "cpu";
  if (numa === "off" || numa === "auto" && !isNative) return await measureModel(given);
  const options = { ...given, warn: once(given.warn) };
  if (numa === "auto") return await measureAuto(CpuBackend.nodes(), options);
  if (!isNative) {
    throw new EngineError("not_supported", [
      "Nodes (",
      { numa },
      ") need the native kernels: leave them out, or compute with ",
      { backend: "cpu" },
    ]);
  }
  const nodes = readNodes(numa);
  return await measureOnEach(nodes, options).catch((error) => {
    if (!(error instanceof MemoryError) || nodes.length === 1) throw error;
    const place = `On each of ${nodes.length} NUMA nodes, with its share of the memory and of all settings: `;
    throw new MemoryError([place, ...wordingOf(error)]);
  });
}

/**
 * Measures the model for one engine per node, unless one engine for all nodes is better: if nodes differ in size, if
 * there are fewer sequences than nodes, or if memory has no room for copies with the same context and draft layer.
 */
async function measureAuto(nodes: readonly CpuNode[], options: LoadOptions): Promise<MeasuredModel> {
  const one = await measureModel(options);
  const cores = nodes.map(({ cores }) => cores);
  const isEven = Math.min(...cores) >= EVEN * Math.max(...cores);
  const places = options.parallel ?? nodes.length;
  if (nodes.length < 2 || !isEven || places < nodes.length) return one;
  if ((options.freeBytes ?? freeMemory()) !== undefined) {
    const copies = await measureOnEach(nodes, options).catch((error) => {
      if (!(error instanceof MemoryError)) throw error;
    });
    const isWhole = copies && copies.contextLength >= one.contextLength &&
      copies.memory.weights >= nodes.length * one.memory.weights;
    if (isWhole) return copies;
  }
  options.warn?.(
    "Using one engine for all NUMA nodes, because free memory has no room for a copy of the model per node",
  );
  return one;
}

/** Returns a function that passes each message on once. */
function once(warn: LoadOptions["warn"]): LoadOptions["warn"] {
  const said = new Set<string>();
  return warn && ((message) => {
    if (!said.has(message)) warn(message);
    said.add(message);
  });
}

/** Loads a model as loadEngine does, with one engine per NUMA node. */
export async function loadOnNodes(options: LoadOptions): Promise<LoadedEngine> {
  const start = performance.now();
  const loaded = await (await measureOnNodes(options)).load(options.signal);
  return { ...loaded, loadMs: performance.now() - start };
}

async function measureOnEach(nodes: readonly CpuNode[], given: LoadOptions): Promise<MeasuredModel> {
  const options = { ...given, backend: "cpu" as const };
  const share = (value: number | undefined) =>
    value === undefined ? undefined : Math.ceil(value / nodes.length);
  const { freeBytes = freeMemory(), parallel, kvBytes, spareBytes, queue, threads } = options;
  const each = {
    ...options,
    freeBytes: share(freeBytes),
    parallel: share(parallel),
    kvBytes: share(kvBytes),
    spareBytes: share(spareBytes),
    queue: share(queue),
  };
  const measured: MeasuredModel[] = [];
  for (const { processors, cores } of nodes) {
    measured.push(await measureModel({ ...each, processors, threads: share(threads) ?? cores }));
  }
  if (nodes.length === 1) return measured[0];
  return {
    ...measured[0],
    memory: times(measured[0].memory, nodes.length),
    load: async (signal) => together(await loadEach(measured, { ...options, signal })),
  };
}

/** Loads the engines one after the other: each packs its weights with its own node's threads. */
async function loadEach(
  measured: readonly MeasuredModel[],
  { signal }: Pick<LoadOptions, "signal">,
): Promise<LoadedEngine[]> {
  const loaded: LoadedEngine[] = [];
  try {
    for (const model of measured) loaded.push(await model.load(signal));
    return loaded;
  } catch (error) {
    await Promise.allSettled(loaded.map(({ engine }) => engine.close()));
    throw error;
  }
}

function together(loaded: readonly LoadedEngine[]): LoadedEngine {
  const sum = (read: (one: LoadedEngine) => number) => loaded.reduce((total, one) => total + read(one), 0);
  return {
    ...loaded[0],
    engine: new NodeEngines(loaded.map(({ engine }) => engine)),
    nodes: loaded.length,
    loadMs: sum(({ loadMs }) => loadMs),
    memory: times(loaded[0].memory, loaded.length),
    kvTokens: sum(({ kvTokens }) => kvTokens),
  };
}

function times(memory: LoadedEngine["memory"], count: number): LoadedEngine["memory"] {
  const { weights, activations, states, kv } = memory;
  return {
    weights: weights * count,
    activations: activations * count,
    states: states * count,
    kv: kv * count,
  };
}

/** Reads nodes such as `0-15/16-31`: each has a list of processors. Throws EngineError invalid_request. */
export function readNodes(text: string): CpuNode[] {
  return text.split("/").map((node) => {
    const processors = node.split(",").flatMap((range) => {
      const [, first, last = first] = /^(\d{1,4})(?:-(\d{1,4}))?$/.exec(range) ?? [];
      if (first === undefined || Number(last) < Number(first) || Number(last) >= MAX_PROCESSORS) {
        throw new EngineError("invalid_request", [
          { numa: undefined },
          ` must be auto, off, or the processors of each node, such as 0-15/16-31 (got ${
            JSON.stringify(text)
          })`,
        ]);
      }
      return Array.from({ length: Number(last) - Number(first) + 1 }, (_, i) => Number(first) + i);
    });
    return { cores: processors.length, processors };
  });
}
