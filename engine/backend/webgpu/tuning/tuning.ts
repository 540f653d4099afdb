/** Results of tuning sweeps in a file, by adapter, then by format and arithmetic. */
import type { TensorType } from "../../../gguf/types.ts";
import { type Arithmetic, ARITHMETICS } from "../../backend.ts";
import { GPU_TYPES } from "../kernels/formats/registry.ts";
import type { Tuning } from "../kernels/types.ts";

/** Tunings by "TYPE ARITHMETIC", such as "Q4_0 f16". */
export type TuningTable = ReadonlyMap<string, Tuning>;

/** File to which `deno task bench:webgpu --tune` writes its results, relative to the repository's root. */
export const TUNING_FILE = ".cache/webgpu-tuning.json";

export const ROWS: readonly number[] = [1, 2, 4, 8];
export const LANES: readonly number[] = [32, 64, 128, 256, 512];

export function tuningKey(type: TensorType, arithmetic: Arithmetic): string {
  return `${type} ${arithmetic}`;
}

/** Returns whether a device can run the kernels of a tuning. */
export function fits({ lanes }: Tuning, workgroupLanes: number): boolean {
  return lanes <= workgroupLanes;
}

/** Returns the problem of a tuning file or its entries for an adapter; undefined if it has none. */
export function tuningProblem(text: string, adapter: string): string | undefined {
  const all = parse(text);
  if (all === undefined) return "it is not JSON";
  if (!isObject(all)) return "it is no JSON object";
  const found = field(all, adapter);
  if (found === undefined) return undefined;
  if (!isObject(found)) return `what it has for "${adapter}" is no JSON object`;
  const bad = Object.keys(found).find((key) => !tuningOf(found[key]));
  return bad === undefined ? undefined : `its "${bad}" for "${adapter}" is no tuning`;
}

/** Returns the file's tunings for an adapter, without entries that fit no kernel. */
export function parseTunings(text: string, adapter: string): TuningTable {
  const table = new Map<string, Tuning>();
  const found = field(parse(text), adapter);
  const known = GPU_TYPES.flatMap((type) => ARITHMETICS.map((a) => tuningKey(type, a)));
  for (const key of known) {
    const tuning = tuningOf(field(found, key));
    if (tuning) table.set(key, tuning);
  }
  return table;
}

/** Returns an entry of the file as a tuning; undefined if it fits no kernel. */
function tuningOf(entry: unknown): Tuning | undefined {
  const [rows, lanes] = [field(entry, "rows") as number, field(entry, "lanes") as number];
  return ROWS.includes(rows) && LANES.includes(lanes) ? { rows, lanes } : undefined;
}

/**
 * Returns the file's text with an adapter's new tunings in place of the old ones for the same formats and
 * arithmetics.
 */
export function mergeTunings(text: string, adapter: string, table: TuningTable): string {
  const all = parse(text);
  const whole = isObject(all) ? all : {};
  const merged = { ...Object.fromEntries(parseTunings(text, adapter)), ...Object.fromEntries(table) };
  return JSON.stringify({ ...whole, [adapter]: merged }, null, 2) + "\n";
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}

function field(value: unknown, name: string): unknown {
  return isObject(value) && Object.hasOwn(value, name) ? value[name] : undefined;
}
