import { type FormatReport, inspectModel, type ModelReport, type PlanReport } from "../lib/inspect.ts";
import { KV_TYPES, KV_WORDS } from "../lib/model.ts";
import { Flags } from "./shared/flags.ts";
import { MAX_CONTEXT, MAX_PARALLEL, modelPath } from "./shared/model.ts";
import { sizeInWords } from "./shared/sizes.ts";
import { out } from "./shared/terminal.ts";
import { asFlags } from "./shared/words.ts";

const HELP =
  `Describe a model file: its metadata, its tensors, the memory it needs and the plan it is computed by.

Usage: deno task inspect [options]

  --model FILE   the GGUF file (default: the model that comes with compy)
  --ctx N        tokens that one sequence may hold, for the memory (default: the model's own, at most 4096)
  --parallel N   sequences side by side, for the memory (default 4)
  --kv-type T    of the KV cache: f16, 16 bits a value, which on the CPU are integers with a scale for each head, or q8_0 in
                 53 % of the memory (default f16)
  --json         one JSON object: {"path", "files", "file_bytes", "version", "metadata",
                 "formats": [{"type", "tensors", "elements", "bytes"}, …],
                 "context", "parallel", "kv_type", "layers": [{"kind", "count"}, …],
                 "memory": {"weights", "kv", "states", "scratch"}, "weights_per_token", "memory_free",
                 "left_out": [{"part", "tensors", "bytes"}, …], "plan",
                 "webgpu": {"layers": [dispatches, …], "total"}};
                 where compy cannot run the model, the last ten are left out and "refusal" says why
  --help         this text

Long values are cut short, and of long arrays only the length is given. No weights are read. The KV cache becomes resident as it fills.
Exit code: 0 described, even if compy cannot run the model; 1 broken file or none; 2 wrong usage.
`;

/** Characters of a value in the text. */
const MAX_SHOWN = 200;

/** `inspect …` of the command line. Returns the exit code. */
export async function inspectCommand(args: readonly string[]): Promise<number> {
  const flags = new Flags(args, { values: ["model", "ctx", "parallel", "kv-type"] });
  if (flags.help) {
    out(HELP);
    return 0;
  }
  const report = await inspectModel({
    contextLength: flags.count("ctx", 1, MAX_CONTEXT),
    parallel: flags.count("parallel", 1, MAX_PARALLEL),
    kvType: flags.choice("kv-type", KV_TYPES),
    model: modelPath(flags.text("model")),
    words: asFlags,
  });
  out(flags.json ? `${JSON.stringify(asJson(report), replaceBigint)}\n` : asText(report));
  return 0;
}

function asJson({ path, files, fileBytes, version, metadata, formats, plan }: ModelReport) {
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
      kv_type: plan.kvType,
      layers: plan.layers,
      memory: plan.memory,
      weights_per_token: plan.tokenWeights,
      memory_free: plan.free,
      left_out: plan.leftOut,
      plan: plan.text,
      webgpu: plan.gpu,
    }),
  };
}

/** Typed arrays as JSON's arrays. */
function plain(value: unknown): unknown {
  return ArrayBuffer.isView(value) ? Array.from(value as unknown as ArrayLike<number>) : value;
}

/** JSON has no integers beyond 2^53 that all readers understand. */
function replaceBigint(_key: string, value: unknown): unknown {
  return typeof value === "bigint" ? value.toString() : value;
}

function asText({ path, files, fileBytes, version, metadata, formats, plan }: ModelReport): string {
  return [
    `${path}: GGUF version ${version}, ${sizeInWords(fileBytes)}${files > 1 ? ` in ${files} files` : ""}`,
    "",
    ...[...metadata].map(([key, value]) => `${visible(key)} = ${show(value)}`),
    "",
    ...formats.map(formatLine),
    "",
    ...("refusal" in plan ? [`compy cannot run this model: ${plan.refusal}`, ""] : planLines(plan)),
  ].join("\n");
}

function formatLine({ type, tensors, elements, bytes }: FormatReport): string {
  const bits = (8 * bytes / elements).toFixed(2);
  return `${type.padEnd(7)} ${String(tensors).padStart(5)} tensors ${
    sizeInWords(bytes).padStart(10)
  }  ${bits} bits a weight`;
}

function planLines(plan: PlanReport): string[] {
  const { contextLength, parallel, kvType, free, text, gpu } = plan;
  const { weights, kv, states, scratch } = plan.memory;
  return [
    `layers: ${plan.layers.map(({ kind, count }) => `${count} of ${kind}`).join("; ")}`,
    `memory: ${sizeInWords(weights + kv + states + scratch)}, of it ${sizeInWords(weights)} packed weights, ${
      sizeInWords(kv)
    } KV cache in ${KV_WORDS[kvType]} once full ` +
    `(${parallel} sequences of ${contextLength} tokens), ` +
    (states > 0 ? `${sizeInWords(states)} recurrent states, ` : "") + `${sizeInWords(scratch)} activations`,
    `weights that a token is computed from: ${sizeInWords(plan.tokenWeights)}`,
    ...(free === undefined ? [] : [`free for it now: ${sizeInWords(free)}`]),
    ...plan.leftOut.map(({ part, tensors, bytes }) =>
      `left out: ${part}, ${tensors} tensors, ${sizeInWords(bytes)}`
    ),
    gpuLine(gpu),
    "",
    text,
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
  return visible(text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}… (${text.length} characters)` : text);
}

/** A 32-bit float in the few digits that it has. */
function shortest(value: number): number {
  const short = Number(value.toPrecision(7));
  return Math.fround(short) === value ? short : value;
}

/** A stranger's text without the controls that a terminal would obey. */
function visible(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\u2028\u2029]/gu, (c) => `\\u{${c.codePointAt(0)!.toString(16)}}`);
}
