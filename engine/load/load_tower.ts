import { basename, dirname, join } from "@std/path";
import { imagesOf } from "../architectures/registry.ts";
import { EngineError } from "../api/errors.ts";
import { sha256 } from "../cache/disk/names.ts";
import { packedBytes, prepareBackend } from "../backend/choose.ts";
import { readFloats } from "../gguf/float_tensor.ts";
import { openGguf } from "../gguf/reader.ts";
import type { GgufFile } from "../gguf/types.ts";
import { isTowerName, modelName, towerName } from "../models/folder.ts";
import type { ImageRows } from "../plan/extra_rows.ts";
import { tokenOf } from "../vision/image_text.ts";
import type { TowerShape } from "../vision/kind.ts";
import { imageTokens, positionTensors, projectorOf, readTower } from "../vision/shape.ts";
import { Tower, towerSize } from "../vision/tower.ts";
import { buildTower } from "../vision/tower_plan.ts";
import type { Plan } from "../plan/plan.ts";
import { encodePlan } from "../plan/encode.ts";
import type { ModelDescription } from "./describe.ts";
import { fingerprintModel } from "./fingerprint.ts";
import type { MemoryNeeds } from "./memory_error.ts";
import type { LoadOptions } from "./options.ts";
import { MAX_ROWS, memoryOf } from "./size.ts";

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
  /** An image in the text of a prompt, as chat templates write it. */
  readonly promptText: string;
  /** Returns a digest of everything that determines the rows of an image, except its pixels. */
  digest(): Promise<string>;
  load(signal?: AbortSignal): Promise<Tower>;
}

type TowerOptions = Pick<
  LoadOptions,
  "mmproj" | "open" | "backend" | "threads" | "processors" | "isa" | "warn"
>;

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
  if (backend !== "cpu" || options.open !== undefined || !imagesOf(decoder.file)) return undefined;
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
  shape: TowerShape,
  decoder: ModelDescription,
): string | undefined {
  const { kind: { text }, projection, deepLayers } = shape;
  const { metadata } = decoder.file;
  const architecture = metadata.getString("general.architecture");
  const images = imagesOf(decoder.file);
  if (!images) return `models of architecture ${architecture} take no images`;
  if ((images === "grid") !== (text.grid ?? false)) {
    return `its images do not fit architecture ${architecture}`;
  }
  const width = metadata.getCount(`${architecture}.embedding_length`);
  if (width !== projection) return `it returns rows of ${projection} columns, but the model is ${width} wide`;
  const deep = metadata.getCount(`${architecture}.n_deepstack_layers`, 0);
  if (deep !== deepLayers.length) {
    return `it has rows for ${deepLayers.length} deep layers, but the model reads ${deep}`;
  }
  if (text.together) {
    const window = metadata.getCount(`${architecture}.attention.sliding_window`, 0) || MAX_ROWS;
    const [, tokens] = imageTokens(shape);
    if (tokens > Math.min(window, MAX_ROWS)) {
      return `its images have ${tokens} tokens, but only ${
        Math.min(window, MAX_ROWS)
      } tokens can attend to each other`;
    }
  }
  if (tokenOf(decoder.tokenizer, text.mark) === undefined) {
    return `the model's vocabulary has no ${text.mark}`;
  }
  return undefined;
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
  const tables = positionTensors(file, shape).reduce((sum, { byteLength }) => sum + byteLength, 0);
  return {
    path: file.path,
    projector: projectorOf(file),
    layers: shape.layers,
    imageTokens: imageTokens(shape),
    memory: {
      ...memoryOf(plan, towerSize(shape)),
      weights: bytes.reduce((sum, n) => sum + n, tables),
    },
  };
}

async function measured(
  file: GgufFile,
  shape: TowerShape,
  decoder: ModelDescription,
  { threads, processors, isa }: TowerOptions,
): Promise<MeasuredTower> {
  const [plan, size, tables] = [buildTower(file, shape), towerSize(shape), positionTensors(file, shape)];
  const report = await reportOf(file, shape, plan, { isa, backend: "cpu" });
  const { mark, around: [before, after] = ["", ""] } = shape.kind.text;
  return {
    report,
    images: { deepstack: shape.deepLayers.length },
    memory: report.memory,
    promptText: `${before}${mark}${after}`,
    digest: async () => sha256((await fingerprintModel(file)).weights + sha256(encodePlan(plan, size))),
    load: async (signal) => {
      const progress = () => signal?.throwIfAborted();
      const { backend } = await prepareBackend(file, plan, size, {
        threads,
        processors,
        isa,
        backend: "cpu",
        progress,
      });
      try {
        const positions = await Promise.all(tables.map((table) => readFloats(file, table)));
        return new Tower({ backend, shape, positions, tokenizer: decoder.tokenizer });
      } catch (error) {
        backend.close();
        throw error;
      }
    },
  };
}
