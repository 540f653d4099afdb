import {
  convertCheckpoint,
  ConvertError,
  type ConvertReport,
  convertVision,
  QUANTIZE_TO,
  type QuantizeTo,
  type TensorReport,
  TOWER_TYPES,
} from "../lib/convert.ts";
import { UsageError } from "./shared/flags.ts";
import { readWords } from "./shared/read_settings.ts";
import { choice, count, HELP_LINE, helpOf, onOff, path } from "./shared/settings.ts";
import { explained } from "../lib/system_errors.ts";
import { onInterrupt, out, ProgressLine } from "./shared/terminal.ts";
import { escaped, jsonLine } from "./shared/escape.ts";

const OPTIONS = {
  out: path("FILE", { help: "the file to write; an existing file is never overwritten" }),
  mmproj: path("FILE", {
    help: "write the vision tower to this file; without --out, only the tower is converted",
  }),
  lora: path("FOLDER", {
    help: "merge this LoRA adapter, a folder with adapter_config.json and adapter_model.safetensors",
  }),
  quantize: choice("TYPE", QUANTIZE_TO, {
    help:
      `store all matrices as ${
        QUANTIZE_TO.join(", ")
      }, and report the error of each; a matrix whose rows do not divide into the ` +
      "format's blocks (256 values for *_k, tq* and iq* except iq4_nl, 128 for q1_0, 64 for q2_0) becomes q8_0; instead " +
      "of q3_k, q2_k and iq* it becomes iq4_nl, instead of tq* q2_0",
  }),
  imatrix: path("FILE", {
    help:
      "keep important columns more exact: an importance matrix (GGUF) from imatrix or llama.cpp; needs --quantize *_k, iq* or tq*",
  }),
  threads: count({
    min: 1,
    max: 1024,
    help: "number of threads that quantize (default: one per processor); it does not change the file",
  }),
  json: onOff({
    help:
      'print one JSON object: {"path", "file_bytes", "architecture", "left_out": {what: tensors}, "tensors": ' +
      '[{"name", "type", "shape", "source", "error": {"relative_rms", "max"}}, …]}; "error" for quantized tensors only; ' +
      '"refusal" if compy itself cannot run the file; with --out and --mmproj, "mmproj" has the same keys for the tower',
  }),
};

const HELP = `Convert a Hugging Face or MLX checkpoint into a GGUF file.

Usage: deno task convert DIR [--out FILE.gguf] [--mmproj FILE.gguf] [options]

  DIR                the folder with config.json, tokenizer.json and the weights (*.safetensors)
${helpOf(OPTIONS)}${HELP_LINE}
docs/CONVERT.md lists the models and the formats of weights. --mmproj converts vision towers of these model types:
${TOWER_TYPES.join(", ")}.
Without --quantize the conversion is lossless: MLX's MXFP4 becomes GGUF's MXFP4; BF16, F16 and F32 stay as they are; FP8 becomes
BF16 or F32; MLX's 4-bit affine codes become Q4_1 if its half floats can hold every scale and bias. A tensor that cannot be
converted without loss is refused, with its name and the reason. Norms, biases and similar small tensors are widened to F32.

Weights are streamed: any checkpoint takes a few hundred MB of memory, and each thread some 20 MB. The file is written as
FILE.partial, read back, compared and then renamed. After an error or Ctrl-C nothing remains; the next conversion replaces what a
killed one left.
Exit code: 0 converted, 1 refused, failed or stopped, 2 wrong usage.

Example:
  deno task convert ~/models/Qwen3.5-0.8B-mxfp4 --out qwen3.5-0.8b-mxfp4.gguf
  deno task generate --model qwen3.5-0.8b-mxfp4.gguf --chat 'Hello'
`;

/** Runs `convert …` of the command line. Returns the exit code. */
export async function convertCommand(args: readonly string[]): Promise<number> {
  const folder = args[0]?.startsWith("-") ? undefined : args[0];
  const given = readWords(OPTIONS, folder === undefined ? args : args.slice(1), HELP);
  if (given === undefined) return 0;
  if (!folder) throw new UsageError("Give the checkpoint's folder first (got none)");
  const { values: { out: path, mmproj, lora, quantize, imatrix, threads } } = given;
  if (path === undefined && mmproj === undefined) {
    throw new UsageError(
      "Give the file to write: --out FILE.gguf, or --mmproj FILE.gguf for the vision tower",
    );
  }
  if (path === undefined && lora !== undefined) {
    throw new UsageError("--lora needs --out FILE.gguf, because an adapter changes only the text part");
  }
  if (imatrix !== undefined && (quantize === undefined || path === undefined)) {
    throw new UsageError(
      quantize === undefined
        ? "--imatrix needs --quantize TYPE"
        : "--imatrix needs --out FILE.gguf, because an importance matrix is only for the text part",
    );
  }
  const stop = new AbortController();
  onInterrupt(() => stop.abort(new ConvertError("Stopped; nothing is left behind")));
  const run = (convert: typeof convertCheckpoint, out: string) =>
    converted(convert, { folder, out, lora, quantize, importance: imatrix, threads, signal: stop.signal });
  const model = path === undefined ? undefined : await run(convertCheckpoint, path);
  const tower = mmproj === undefined ? undefined : await run(convertVision, mmproj);
  const reports = [model, tower].filter((report) => report !== undefined);
  if (!given.json) out(reports.map((report) => asText(report, quantize)).join(""));
  else out(jsonLine({ ...asJson(reports[0]), ...(model && tower ? { mmproj: asJson(tower) } : {}) }));
  return 0;
}

async function converted(
  convert: typeof convertCheckpoint,
  options: Parameters<typeof convertCheckpoint>[0],
): Promise<ConvertReport> {
  const lines = { write: new ProgressLine("converting"), verify: new ProgressLine("reading back") };
  try {
    return await convert({
      ...options,
      progress: (stage, done, total) => {
        if (stage === "verify") lines.write.done();
        lines[stage].update(done, total);
      },
    });
  } catch (error) {
    throw explained(`Cannot convert "${options.folder}" into "${options.out}"`, error);
  } finally {
    lines.write.done();
    lines.verify.done();
  }
}

function asJson({ path, fileBytes, architecture, leftOut, tensors, refusal }: ConvertReport) {
  return {
    path,
    file_bytes: fileBytes,
    architecture,
    left_out: leftOut,
    refusal,
    tensors: tensors.map(({ name, type, shape, source, error }) => {
      return {
        name,
        type,
        shape,
        source,
        error: error && { relative_rms: error.relativeRms, max: error.max },
      };
    }),
  };
}

function asText(report: ConvertReport, quantize: QuantizeTo | undefined): string {
  const { path, fileBytes, architecture, leftOut, tensors, weighed, refusal } = report;
  const kinds = Map.groupBy(tensors, ({ source, type }) => source === type ? type : `${source} to ${type}`);
  return [
    `${path}: ${architecture}, ${(fileBytes / 1e6).toFixed(1)} MB, read back and compared`,
    ...[...kinds].map(([kind, tensors]) => `  ${String(tensors.length).padStart(5)} tensors ${kind}`),
    ...(weighed ? [`  ${String(weighed).padStart(5)} tensors quantized with the importance matrix`] : []),
    ...Object.entries(leftOut).map(([what, count]) =>
      `  ${String(count).padStart(5)} tensors left out: ${what}`
    ),
    ...otherTypeLines(tensors, quantize),
    ...errorLines(tensors),
    ...(refusal === undefined ? [] : [`compy cannot run this model: ${refusal}`]),
    "",
  ].map(escaped).join("\n");
}

/** Returns a line for each type that differs from the requested quantization. */
function otherTypeLines(tensors: readonly TensorReport[], quantize: QuantizeTo | undefined): string[] {
  if (quantize === undefined) return [];
  const others = tensors.filter(({ type, error }) => error && type.toLowerCase() !== quantize);
  if (others.length === 0) return [];
  const types = [...new Set(others.map(({ type }) => type))].join(", ");
  return [
    `  ${String(others.length).padStart(5)} of them in ${types}: ` +
    `their rows do not divide into blocks of ${quantize.toUpperCase()}`,
  ];
}

function errorLines(tensors: readonly TensorReport[]): string[] {
  const quantised = tensors.filter(({ error }) => error);
  if (quantised.length === 0) return [];
  return [
    "",
    "relative RMS error  largest error  tensor",
    ...quantised.map(({ name, error }) => {
      const { relativeRms, max } = error!;
      return `${relativeRms.toFixed(5).padStart(18)}  ${max.toExponential(2).padStart(13)}  ${name}`;
    }),
  ];
}
