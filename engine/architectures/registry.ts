import { GgufError, quote } from "../gguf/errors.ts";
import { type Hparams, readHparams, requireTensor } from "../gguf/hparams.ts";
import type { GgufFile } from "../gguf/types.ts";
import { type ModelPooling, RANK_HEAD, readPooling } from "../gguf/pooling.ts";
import { PlanBuilder, type Value } from "../plan/builder.ts";
import type { Plan } from "../plan/plan.ts";
import { candidates } from "../plan/ops/candidates.ts";
import { linear } from "../plan/ops/matmul.ts";
import { pool } from "../plan/ops/pool.ts";
import { returnPooled } from "../plan/ops/return_pooled.ts";
import { rmsNorm } from "../plan/ops/rms_norm.ts";
import { buildLlama } from "./llama.ts";
import { buildQwen3Moe } from "./qwen3moe.ts";
import { buildQwen35 } from "./qwen35.ts";

/**
 * Writes the layers of a model file, whose hyper-parameters are checked; `frequencies` are those of its rotary positions.
 * Returns the rows after the last layer, which are not normed yet.
 */
type Build = (b: PlanBuilder, h: Hparams, frequencies: Float64Array) => Value;

/** The architectures that compy computes, by GGUF's name. */
const ARCHITECTURES: Readonly<Record<string, Build>> = {
  llama: (b, h, f) => buildLlama(b, h, f, { interleavedRope: true, headNorms: false }),
  qwen2: (b, h, f) => buildLlama(b, h, f, { interleavedRope: false, headNorms: false }),
  qwen3: (b, h, f) => buildLlama(b, h, f, { interleavedRope: false, headNorms: true }),
  qwen3moe: buildQwen3Moe,
  qwen35: buildQwen35,
};

/** Those whose feed-forward layers are mixtures of experts. */
const MIXTURES: ReadonlySet<string> = new Set(["qwen3moe"]);

/** Llama 3's factors on the rotary frequencies, in its own tensor. */
const ROPE_FREQS = "rope_freqs.weight";

/** The norm after the last layer. */
const OUTPUT_NORM = "output_norm";

/** What the kernels can hold: heads in whole vectors. */
const HEAD_DIM_STEP = 16;

/**
 * Compiles a file's model into its plan. `ropeFactors` are the values of `rope_freqs.weight` where the file has it; `pooling` is
 * by default what the file says.
 * Throws GgufError for another architecture, a missing or unexpected tensor, or a shape that compy cannot compute.
 */
export function buildPlan(
  file: GgufFile,
  ropeFactors?: Float32Array,
  pooling: ModelPooling = readPooling(file),
): Plan {
  const architecture = file.metadata.getString("general.architecture");
  const build = Object.hasOwn(ARCHITECTURES, architecture) ? ARCHITECTURES[architecture] : undefined;
  if (!build) {
    const known = Object.keys(ARCHITECTURES).map(quote).join(", ");
    const detail = `must be one of ${known} (got ${quote(architecture)})`;
    throw new GgufError("GGUF_HPARAM", detail, { field: 'key "general.architecture"' });
  }
  const hparams = readHparams(file, MIXTURES.has(architecture));
  checkHeads(hparams);
  const builder = new PlanBuilder(file);
  builder.leaveOut((name) => name === ROPE_FREQS);
  const x = build(builder, hparams, ropeFrequencies(hparams, ropeFactors));
  candidates(builder, rmsNorm(builder, x, OUTPUT_NORM, hparams.rmsEpsilon, "logits"), hparams.vocabSize);
  addPooling(builder, x, hparams, pooling);
  return builder.finish({
    architecture,
    vocabSize: hparams.vocabSize,
    contextLength: hparams.contextLength,
  });
}

/** Beside the candidates, a row for each text that is to be embedded or ranked. */
function addPooling(
  b: PlanBuilder,
  x: Value,
  { rmsEpsilon: eps }: Hparams,
  { kind, labels }: ModelPooling,
): void {
  const pooled = pool(b, x, kind === "rank" ? "last" : kind, { name: OUTPUT_NORM, eps });
  if (kind !== "rank") {
    b.leaveOut((name) => name.startsWith(`${RANK_HEAD}.`));
    returnPooled(b, pooled);
  } else {
    returnPooled(b, linear(b, pooled, [{ name: RANK_HEAD, rows: labels }])[0]);
  }
}

/** The values of `rope_freqs.weight`, read from the file; undefined where it has none. */
export async function readRopeFactors(file: GgufFile): Promise<Float32Array | undefined> {
  if (!file.tensors.has(ROPE_FREQS)) return undefined;
  const mixture = MIXTURES.has(file.metadata.getString("general.architecture"));
  const info = requireTensor(file, ROPE_FREQS, [readHparams(file, mixture).ropeDimensionCount / 2]);
  const field = `tensor ${quote(ROPE_FREQS)}`;
  if (info.type !== "F32") {
    throw new GgufError("GGUF_HPARAM", `must be of type F32 (got ${info.type})`, { field });
  }
  using source = await Deno.open(file.path);
  await source.seek(info.offset, Deno.SeekMode.Start);
  const bytes = new Uint8Array(info.byteLength);
  for (let at = 0; at < bytes.length;) {
    const n = await source.read(bytes.subarray(at));
    if (n === null) {
      throw new GgufError("GGUF_TRUNCATED", "the file ended", { byte: info.offset + at, field });
    }
    at += n;
  }
  const factors = new Float32Array(bytes.buffer);
  if (factors.some((f) => !(f > 0) || f === Infinity)) {
    throw new GgufError("GGUF_DATA", "must have factors above 0 and finite only", { field });
  }
  return factors;
}

function checkHeads(h: Hparams): void {
  const refuse = (key: string, got: number, must: string) => {
    const field = `key ${quote(`${h.architecture}.attention.${key}`)}`;
    throw new GgufError("GGUF_HPARAM", `must be ${must} (got ${got})`, { field });
  };
  if (h.valueLength !== h.keyLength) refuse("value_length", h.valueLength, `the key length ${h.keyLength}`);
  if (h.keyLength % HEAD_DIM_STEP !== 0) {
    refuse("key_length", h.keyLength, `a multiple of ${HEAD_DIM_STEP}`);
  }
  if (h.headCount / h.headCountKv > 64) {
    refuse("head_count_kv", h.headCountKv, `at least a 64th of the ${h.headCount} heads`);
  }
}

/** base^(-2i / n) / (scaling factor x Llama 3's factor). */
function ropeFrequencies(h: Hparams, factors?: Float32Array): Float64Array {
  const n = h.ropeDimensionCount;
  return Float64Array.from({ length: n / 2 }, (_, i) => {
    return Math.pow(h.ropeFreqBase, -2 * i / n) / (h.ropeScaling.factor * (factors?.[i] ?? 1));
  });
}
