import {
  type DrafterReport,
  type FormatReport,
  inspectModel,
  type ModelReport,
  type PlanReport,
  type TowerReport,
} from "../lib/inspect.ts";
import { KV_WORDS } from "../lib/model.ts";
import { COMPUTE, CTX, DRAFTS, IMAGES, MAX_PARALLEL } from "./shared/engine_settings.ts";
import { modelPath } from "./shared/model.ts";
import { readWords } from "./shared/read_settings.ts";
import { count, HELP_LINE, helpOf, onOff, path } from "./shared/settings.ts";
import { sizeInWords } from "./shared/sizes.ts";
import { out } from "./shared/terminal.ts";
import { asFlags } from "./shared/words.ts";
import { escaped, jsonLine } from "./shared/escape.ts";

const OPTIONS = {
  model: path("FILE", { help: "the GGUF file (default: the model that comes with compy)" }),
  ctx: CTX,
  parallel: count({
    min: 1,
    max: MAX_PARALLEL,
    help: "number of sequences that the memory is computed for (default: 4)",
  }),
  kvType: COMPUTE.kvType,
  ...IMAGES,
  draft: DRAFTS.draft,
  json: onOff({
    help:
      'print one JSON object: {"path", "files", "file_bytes", "version", "metadata", "formats": [{"type", ' +
      '"tensors", "elements", "bytes"}, …], "context", "parallel", "kv_tokens", "kv_type", "layers": [{"kind", "count"}, …], ' +
      '"memory": {"weights", "kv", "states", "scratch"}, "weights_per_token", "memory_free", "left_out": [{"part", ' +
      '"tensors", "bytes"}, …], "plan", "webgpu": {"layers": [dispatches, …], "total"}}; if compy cannot run the ' +
      'model, the keys from "context" on are missing and "refusal" says why; "tower": {"path", "projector", "layers", "image_tokens": ' +
      '[least, most], "memory": {"weights", "scratch"}} or {"refusal"}, if the file is a vision tower or has one beside it; ' +
      'with --draft "drafter": {"path", "architecture", "memory", "weights_per_token", "joined"} or {"refusal"}; if ' +
      '"joined" is true, "files", "file_bytes" and "formats" include the drafter',
  }),
};

const HELP = `Describe a model file: its metadata, its tensors, the memory it needs and its execution plan.

Usage: deno task inspect [options]

${helpOf(OPTIONS)}${HELP_LINE}
Long values are shortened, and long arrays are shown as their length. No weights are read. The KV cache takes memory as it
fills.
Exit code: 0 described, even if compy cannot run the model; 1 broken or missing file; 2 wrong usage.
`;

/** Maximum characters of a value in the report. */
const MAX_SHOWN = 200;

/** Runs `inspect …` of the command line. Returns the exit code. */
export async function inspectCommand(args: readonly string[]): Promise<number> {
  const given = readWords(OPTIONS, args, HELP);
  if (given === undefined) return 0;
  const { values: { model, ctx: contextLength, parallel, kvType, mmproj, draft } } = given;
  const report = await inspectModel({
    contextLength,
    parallel,
    kvType,
    mmproj,
    draft: draft === undefined ? undefined : modelPath(draft),
    model: modelPath(model),
    words: asFlags,
  });
  out(given.json ? jsonLine(asJson(report), replaceBigint) : asText(report));
  return 0;
}

function asJson({ path, files, fileBytes, version, metadata, formats, plan, tower, drafter }: ModelReport) {
  return {
    path,
    files,
    file_bytes: fileBytes,
    version,
    metadata: Object.fromEntries([...metadata].map(([key, value]) => [key, plain(value)])),
    formats,
    ...("refusal" in plan ? plan : {
      context: plan.contextLength,
      parallel: plan.parallel,
      kv_tokens: plan.kvTokens,
      kv_type: plan.kvType,
      layers: plan.layers,
      memory: plan.memory,
      weights_per_token: plan.tokenWeights,
      memory_free: plan.free,
      left_out: plan.leftOut,
      plan: plan.text,
      webgpu: plan.gpu,
    }),
    ...(tower && { tower: "refusal" in tower ? tower : towerJson(tower) }),
    ...(drafter && { drafter: "refusal" in drafter ? drafter : drafterJson(drafter) }),
  };
}

function drafterJson({ path, architecture, memory, tokenWeights, joined }: DrafterReport) {
  const { weights, kv, states, activations: scratch } = memory;
  return {
    path,
    architecture,
    memory: { weights, kv, states, scratch },
    weights_per_token: tokenWeights,
    joined,
  };
}

function towerJson({ path, projector, layers, imageTokens, memory }: TowerReport) {
  const { weights, activations: scratch } = memory;
  return { path, projector, layers, image_tokens: imageTokens, memory: { weights, scratch } };
}

/** Returns a value for JSON, with plain arrays instead of typed arrays. */
function plain(value: unknown): unknown {
  return ArrayBuffer.isView(value) ? Array.from(value as unknown as ArrayLike<number>) : value;
}

/** Returns a bigint as text for JSON: some readers do not support integers beyond 2^53. */
function replaceBigint(_key: string, value: unknown): unknown {
  return typeof value === "bigint" ? value.toString() : value;
}

function asText(report: ModelReport): string {
  const { path, files, fileBytes, version, metadata, formats, plan, tower, drafter } = report;
  return [
    `${path}: GGUF version ${version}, ${sizeInWords(fileBytes)}${files > 1 ? ` in ${files} files` : ""}`,
    "",
    ...[...metadata].map(([key, value]) => `${key} = ${show(value)}`),
    "",
    ...formats.map(formatLine),
    "",
    ...(tower ? [...towerLines(tower), ""] : []),
    ...(drafter ? [...drafterLines(drafter), ""] : []),
    ...("refusal" in plan ? [`compy cannot run this model: ${plan.refusal}`, ""] : planLines(plan)),
  ].map(escaped).join("\n");
}

function formatLine({ type, tensors, elements, bytes }: FormatReport): string {
  const bits = (8 * bytes / elements).toFixed(2);
  return `${type.padEnd(7)} ${String(tensors).padStart(5)} tensors ${
    sizeInWords(bytes).padStart(10)
  }  ${bits} bits a weight`;
}

function towerLines(tower: NonNullable<ModelReport["tower"]>): string[] {
  if ("refusal" in tower) return [`vision tower: ${tower.refusal}`];
  const { path, projector, layers, imageTokens: [least, most], memory: { weights, activations } } = tower;
  return [
    `vision tower: ${path}, ${projector}, ${layers} layers, ${least} to ${most} tokens per image`,
    `memory of the vision tower: ${sizeInWords(weights + activations)}, of it ${
      sizeInWords(weights)
    } packed weights, ${sizeInWords(activations)} activations`,
  ];
}

function drafterLines(drafter: NonNullable<ModelReport["drafter"]>): string[] {
  if ("refusal" in drafter) return [`drafter: ${drafter.refusal}`];
  const { path, architecture, memory: { weights, kv, states, activations }, tokenWeights, joined } = drafter;
  return [
    `drafter: ${path}, ${architecture}, ${joined ? "part of the model's plan" : "a smaller model"}`,
    `memory of the drafter: ${sizeInWords(weights + kv + states + activations)}, of it ${
      sizeInWords(weights)
    } packed weights, ${sizeInWords(kv)} KV cache once full${
      joined ? "; included in the model's memory" : ""
    }`,
    `weights read per drafted token: ${sizeInWords(tokenWeights)}`,
  ];
}

function planLines(plan: PlanReport): string[] {
  const { contextLength, kvTokens, kvType, free, text, gpu } = plan;
  const { weights, kv, states, scratch } = plan.memory;
  return [
    `layers: ${plan.layers.map(({ kind, count }) => `${count} of ${kind}`).join("; ")}`,
    `memory: ${sizeInWords(weights + kv + states + scratch)}, of it ${sizeInWords(weights)} packed weights, ${
      sizeInWords(kv)
    } KV cache in ${KV_WORDS[kvType]} once full ` +
    `(${kvTokens} tokens, at most ${contextLength} of one sequence), ` +
    (states > 0 ? `${sizeInWords(states)} recurrent states, ` : "") + `${sizeInWords(scratch)} activations`,
    `weights that a token is computed from: ${sizeInWords(plan.tokenWeights)}`,
    ...(free === undefined ? [] : [`free for it now: ${sizeInWords(free)}`]),
    ...plan.leftOut.map(({ part, tensors, bytes }) =>
      `left out: ${part}, ${tensors} tensors, ${sizeInWords(bytes)}`
    ),
    gpuLine(gpu),
    "",
    ...text.split("\n"),
  ];
}

function gpuLine(gpu: PlanReport["gpu"]): string {
  if ("refusal" in gpu) return `--backend webgpu: ${gpu.refusal}`;
  const layers = [...new Set(gpu.layers)].sort((a, b) => a - b).join(" or ");
  return `--backend webgpu: ${gpu.total} dispatches a token, ${layers} in each of ${gpu.layers.length} layers`;
}

function show(value: unknown): string {
  if (typeof value === "object" && value !== null && "elements" in value) {
    return `[${value.elements} elements]`;
  }
  const text = JSON.stringify(typeof value === "number" ? shortest(value) : plain(value), replaceBigint);
  return text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}… (${text.length} characters)` : text;
}

/** Returns a 32-bit float rounded to its significant digits. */
function shortest(value: number): number {
  const short = Number(value.toPrecision(7));
  return Math.fround(short) === value ? short : value;
}
