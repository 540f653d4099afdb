import { basename, dirname, join } from "@std/path";
import { takesImages } from "../architectures/registry.ts";
import { EngineError } from "../api/errors.ts";
import { packedBytes, prepareBackend } from "../backend/choose.ts";
import { readFloats } from "../gguf/float_tensor.ts";
import { openGguf } from "../gguf/reader.ts";
import type { GgufFile } from "../gguf/types.ts";
import { isTowerName, modelName, towerName } from "../models/folder.ts";
import type { ImageRows } from "../plan/builder.ts";
import { Tower, towerSize } from "../vision/tower.ts";
import {
  buildTower,
  mostPatches,
  positionTensor,
  projectorOf,
  readTower,
  type TowerShape,
} from "../vision/tower_plan.ts";
import type { Plan } from "../plan/plan.ts";
import type { ModelDescription } from "./describe.ts";
import type { MemoryNeeds } from "./memory_error.ts";
import type { LoadOptions } from "./options.ts";
import { memoryOf } from "./size.ts";

/** The token that stands for an image in the templates of Qwen's models. */
const IMAGE_TOKEN = "<|image_pad|>";

/** The content of a vision tower's file, and the memory that the tower needs. */
export interface TowerReport {
  readonly path: string;
  /** The kind of the tower, as the file names it. */
  readonly projector: string;
  readonly layers: number;
  /** Minimum and maximum tokens of an image. */
  readonly imageTokens: readonly [least: number, most: number];
  readonly memory: MemoryNeeds;
}

/** A vision tower whose header was read and checked. */
export interface MeasuredTower {
  readonly report: TowerReport;
  /** The rows that the tower's images give the decoder. */
  readonly images: ImageRows;
  readonly memory: MemoryNeeds;
  load(signal?: AbortSignal): Promise<Tower>;
}

type TowerOptions = Pick<LoadOptions, "mmproj" | "open" | "backend" | "threads" | "isa" | "warn">;

/**
 * Reads the header of the model's vision tower: the given file, or a suitable file beside the model. Returns undefined
 * without a tower. Throws EngineError if the given file does not fit the model, or if the backend cannot compute the
 * tower.
 */
export async function measureTower(
  decoder: ModelDescription,
  options: TowerOptions,
): Promise<MeasuredTower | undefined> {
  const { mmproj, backend, warn } = options;
  if (mmproj !== undefined) {
    if (backend !== "cpu") {
      throw new EngineError("not_supported", ["Images need the native CPU kernels: use ", {
        backend: "cpu",
      }]);
    }
    const file = await openGguf(mmproj);
    const shape = readTower(file);
    const reason = reasonAgainst(shape, decoder);
    if (reason !== undefined) {
      throw new EngineError("invalid_request", `Cannot read images with ${mmproj}: ${reason}`);
    }
    return await measured(file, shape, decoder, options);
  }
  if (backend !== "cpu" || options.open !== undefined || !takesImages(decoder.file)) return undefined;
  for (const path of towersBeside(decoder.file.path)) {
    try {
      const file = await openGguf(path);
      const shape = readTower(file);
      const reason = reasonAgainst(shape, decoder);
      if (reason === undefined) return await measured(file, shape, decoder, options);
      warn?.(`The model cannot read images with the vision tower ${path}: ${reason}`);
    } catch (error) {
      warn?.(
        `The model cannot read images with the vision tower ${path}: ${
          error instanceof Error ? error.message : error
        }`,
      );
    }
  }
  return undefined;
}

/**
 * Returns the path of the model's own tower beside the model, by its name. Without such a file, returns the paths of
 * files beside the model that have a tower's name, in alphabetical order.
 */
function towersBeside(model: string): string[] {
  const folder = dirname(model);
  const own = towerName(modelName(model));
  try {
    const names = process.getBuiltinModule("node:fs").readdirSync(folder);
    const found = names.includes(own)
      ? [own]
      : names.filter((name) => isTowerName(name) && name !== basename(model)).sort();
    return found.map((name) => join(folder, name));
  } catch {
    return [];
  }
}

/** Returns why the tower does not fit the model; undefined if the tower fits. */
function reasonAgainst(
  { projection, deepLayers }: TowerShape,
  decoder: ModelDescription,
): string | undefined {
  const { metadata } = decoder.file;
  const architecture = metadata.getString("general.architecture");
  if (!takesImages(decoder.file)) return `models of architecture ${architecture} take no images`;
  const width = metadata.getCount(`${architecture}.embedding_length`);
  if (width !== projection) return `it returns rows of ${projection} columns, but the model is ${width} wide`;
  const deep = metadata.getCount(`${architecture}.n_deepstack_layers`, 0);
  if (deep !== deepLayers.length) {
    return `it has rows for ${deepLayers.length} deep layers, but the model reads ${deep}`;
  }
  if (imageToken(decoder) === undefined) return `the model's vocabulary has no ${IMAGE_TOKEN}`;
  return undefined;
}

function imageToken({ tokenizer }: ModelDescription): number | undefined {
  const tokens = tokenizer.encode(IMAGE_TOKEN, { parseSpecial: true });
  return tokens.length === 1 && tokenizer.isControl(tokens[0]) ? tokens[0] : undefined;
}

/** Describes the file of a vision tower. Throws GgufError for a file that is not a supported tower. */
export async function describeTower(
  file: GgufFile,
  options: Pick<TowerOptions, "isa" | "backend">,
): Promise<TowerReport> {
  const shape = readTower(file);
  return await reportOf(file, shape, buildTower(file, shape), options);
}

async function reportOf(
  file: GgufFile,
  shape: TowerShape,
  plan: Plan,
  options: Pick<TowerOptions, "isa" | "backend">,
): Promise<TowerReport> {
  const bytes = await packedBytes(plan, options);
  const table = positionTensor(file, shape);
  const { patch, merged, layers, leastPixels } = shape;
  return {
    path: file.path,
    projector: projectorOf(file),
    layers,
    imageTokens: [Math.ceil(leastPixels / (patch * merged) ** 2), mostPatches(shape) / merged ** 2],
    memory: {
      ...memoryOf(plan, towerSize(shape)),
      weights: bytes.reduce((sum, n) => sum + n, table.byteLength),
    },
  };
}

async function measured(
  file: GgufFile,
  shape: TowerShape,
  decoder: ModelDescription,
  { threads, isa }: TowerOptions,
): Promise<MeasuredTower> {
  const [plan, size, table] = [buildTower(file, shape), towerSize(shape), positionTensor(file, shape)];
  const report = await reportOf(file, shape, plan, { isa, backend: "cpu" });
  return {
    report,
    images: { deepstack: shape.deepLayers.length },
    memory: report.memory,
    load: async (signal) => {
      const progress = () => signal?.throwIfAborted();
      const { backend } = await prepareBackend(file, plan, size, { threads, isa, backend: "cpu", progress });
      try {
        const positions = await readFloats(file, table);
        return new Tower({ backend, shape, positions, token: imageToken(decoder)! });
      } catch (error) {
        backend.close();
        throw error;
      }
    },
  };
}
