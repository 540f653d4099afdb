import { GgufError, quote } from "../../gguf/errors.ts";
import { readFloats, requireFloats } from "../../gguf/float_tensor.ts";
import type { Hparams, RopeScaling } from "../../gguf/hparams/hparams.ts";
import type { GgufFile } from "../../gguf/types.ts";
import type { RopeAngles } from "../../plan/plan.ts";

/**
 * Names of tensors that divide the rotary frequencies: Llama 3's, and LongRoPE's for contexts above the original length
 * and up to it.
 */
const FACTORS = {
  all: "rope_freqs.weight",
  long: "rope_factors_long.weight",
  short: "rope_factors_short.weight",
} as const;

/** Values of the rotary factor tensors that the file has. */
export type RopeFactors = { readonly [name in keyof typeof FACTORS]?: Float32Array };

export function isRopeFactors(tensor: string): boolean {
  return Object.values<string>(FACTORS).includes(tensor);
}

/** Rotation settings that a layer may override. */
export interface AngleOptions {
  /** Number of a head's dimensions that are rotated. */
  readonly dimensions?: number;
  readonly base?: number;
  /** Whether `rope.scaling.*` applies; by default it does. */
  readonly scaled?: boolean;
  /** Whether the file's factor tensors apply; by default they do. */
  readonly factors?: boolean;
}

/** A model's rotary positions, from which layers create their angle tables. */
export class Rope {
  /** `axes`: per pair the axis of an image's position that turns it. */
  constructor(
    private readonly h: Hparams,
    private readonly factors: RopeFactors = {},
    private readonly axes?: Uint8Array,
  ) {
    const { long, short } = factors;
    const wanted = h.ropeScaling.type === "longrope";
    if ((long && short) || (!wanted && !long && !short)) return;
    const field = `tensor ${quote(long ? FACTORS.short : FACTORS.long)}`;
    throw new GgufError("GGUF_HPARAM", "missing; LongRoPE needs it beside the other", { field });
  }

  /** Returns the rotary angles: base^(-2i / n), scaled, and divided by the file's factors. */
  angles(options: AngleOptions = {}): RopeAngles {
    const { h, factors: { all, long, short } } = this;
    const { dimensions = h.ropeDimensionCount, base = h.ropeFreqBase, scaled = true, factors = true } =
      options;
    const scaling: RopeScaling = scaled ? h.ropeScaling : { type: "none", factor: 1 };
    const table = (by?: Float32Array) => frequencies(dimensions, base, scaling, factors ? by : undefined);
    return {
      frequencies: table(all ?? short),
      ...(this.axes && { axes: this.axes }),
      magnitude: scaled ? h.ropeMagnitude * yarnMagnitude(scaling) : 1,
      ...(factors && long && { long: { beyond: h.ropeOriginalContext, frequencies: table(long) } }),
    };
  }
}

function frequencies(n: number, base: number, scaling: RopeScaling, factors?: Float32Array): Float64Array {
  const share = scaling.type === "yarn" ? yarnShares(n, base, scaling) : undefined;
  return Float64Array.from({ length: n / 2 }, (_, i) => {
    const [frequency, factor] = [Math.pow(base, -2 * i / n), factors?.[i] ?? 1];
    const interpolated = frequency / (scaling.factor * factor);
    if (!share) return interpolated;
    const own = share(i);
    return interpolated * (1 - own) + frequency / factor * own;
  });
}

type Yarn = RopeScaling & { type: "yarn" };

/**
 * Returns the share of the original frequency that each rotated pair keeps: 1 for pairs that turn more than `betaFast`
 * times in the original context, 0 below `betaSlow`. Source: "YaRN" (arXiv 2309.00071), section 3.2.
 */
function yarnShares(n: number, base: number, { betaFast, betaSlow, originalContext }: Yarn) {
  const pairThatTurns = (times: number) =>
    n * Math.log(originalContext / (times * 2 * Math.PI)) / (2 * Math.log(base));
  const low = Math.max(0, Math.floor(pairThatTurns(betaFast)));
  const high = Math.min(n - 1, Math.ceil(pairThatTurns(betaSlow)));
  return (i: number) => 1 - Math.min(1, Math.max(0, (i - low) / Math.max(0.001, high - low)));
}

/**
 * Returns YaRN's temperature (section 3.3) as a factor on both queries and keys. A log multiplier cancels it
 * partly or wholly.
 */
function yarnMagnitude(scaling: RopeScaling): number {
  if (scaling.type !== "yarn" || scaling.factor <= 1) return 1;
  const magnitude = (multiplier: number) => 0.1 * multiplier * Math.log(scaling.factor) + 1;
  return magnitude(1) / magnitude(scaling.logMultiplier);
}

/** Reads the file's rotary factor tensors. Throws GgufError for a wrong shape or type. */
export async function readFactors(file: GgufFile, h: Hparams): Promise<RopeFactors> {
  const read: Record<string, Float32Array> = {};
  for (const [key, name] of Object.entries(FACTORS)) {
    if (file.tensors.has(name)) read[key] = await readTensor(file, name, h.ropeDimensionCount / 2);
  }
  return read;
}

async function readTensor(file: GgufFile, name: string, length: number): Promise<Float32Array> {
  const factors = await readFloats(file, requireFloats(file, name, [length]));
  if (factors.some((f) => !(f > 0) || f === Infinity)) {
    const field = `tensor ${quote(name)}`;
    throw new GgufError("GGUF_DATA", "must have only finite factors above 0", { field });
  }
  return factors;
}
