import {
  convertCheckpoint,
  ConvertError,
  type ConvertReport,
  QUANTIZE_TO,
  type QuantizeTo,
  type TensorReport,
} from "../lib/convert.ts";
import { Flags, UsageError } from "./shared/flags.ts";
import { explained } from "../lib/system_errors.ts";
import { onInterrupt, out, ProgressLine } from "./shared/terminal.ts";

const HELP = `Convert a checkpoint of Hugging Face or MLX into a GGUF file.

Usage: deno task convert DIR --out FILE.gguf [options]

  DIR              the folder with config.json, tokenizer.json and the weights (*.safetensors)
  --out FILE       the file to write; one that is there is never written over
  --quantize TYPE  store all matrices as q8_0, q6_k, q4_k, q4_0 or mxfp4, and say how far each is from the
                   checkpoint; where rows do not divide into blocks of 256 values, q6_k and q4_k take q8_0
  --json           one JSON object: {"path", "file_bytes", "architecture", "left_out": {what: tensors},
                   "tensors": [{"name", "type", "shape", "source", "error": {"relative_rms", "max"}}, …]};
                   "error" only of quantised tensors; "refusal" where compy itself cannot run the file
  --help           this text

Models: llama, qwen3 and qwen3_5 (its text part; the vision part and the multi-token prediction are left out).
Without --quantize no bit is lost: MLX's MXFP4 becomes GGUF's MXFP4, BF16, F16 and F32 stay what they are, MLX's
4-bit affine codes become Q4_1 where its half floats can hold every scale and bias. What cannot be kept so is refused,
by name and with the reason. Norms, biases and the like are widened to F32.

Weights are streamed: a checkpoint of any size takes some hundred MB of memory. The file is written as FILE.partial, read
back and compared, and only then renamed; after an error or Ctrl-C nothing is left of it, and what a killed conversion
left is replaced by the next.
Exit code: 0 converted, 1 refused, failed or stopped, 2 wrong usage.

Example:
  deno task convert ~/models/Qwen3.5-0.8B-mxfp4 --out qwen3.5-0.8b-mxfp4.gguf
  deno task generate --model qwen3.5-0.8b-mxfp4.gguf --chat 'Hello'
`;

/** `convert …` of the command line. Returns the exit code. */
export async function convertCommand(args: readonly string[]): Promise<number> {
  const folder = args[0]?.startsWith("-") ? undefined : args[0];
  const flags = new Flags(folder === undefined ? args : args.slice(1), { values: ["out", "quantize"] });
  if (flags.help) {
    out(HELP);
    return 0;
  }
  if (!folder) throw new UsageError("Give the checkpoint's folder first (got none)");
  const path = flags.text("out");
  if (path === undefined) throw new UsageError("Give the file to write: --out FILE.gguf");
  const stop = new AbortController();
  onInterrupt(() => stop.abort(new ConvertError("Stopped; nothing is left behind")));
  const lines = { write: new ProgressLine("converting"), verify: new ProgressLine("reading back") };
  try {
    const quantize = readQuantize(flags.text("quantize"));
    const report = await convertCheckpoint({
      folder,
      out: path,
      quantize,
      progress: (stage, done, total) => {
        if (stage === "verify") lines.write.done();
        lines[stage].update(done, total);
      },
      signal: stop.signal,
    });
    lines.verify.done();
    out(flags.json ? `${JSON.stringify(asJson(report))}\n` : asText(report, quantize));
    return 0;
  } catch (error) {
    throw explained(`Cannot convert "${folder}" into "${path}"`, error);
  } finally {
    lines.write.done();
    lines.verify.done();
  }
}

function readQuantize(text: string | undefined): QuantizeTo | undefined {
  const found = QUANTIZE_TO.find((name) => name === text);
  if (text !== undefined && !found) {
    throw new UsageError(`--quantize must be one of ${QUANTIZE_TO.join(", ")} (got "${text}")`);
  }
  return found;
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
  const { path, fileBytes, architecture, leftOut, tensors, refusal } = report;
  const kinds = Map.groupBy(tensors, ({ source, type }) => source === type ? type : `${source} to ${type}`);
  return [
    `${path}: ${architecture}, ${(fileBytes / 1e6).toFixed(1)} MB, read back and compared`,
    ...[...kinds].map(([kind, tensors]) => `  ${String(tensors.length).padStart(5)} tensors ${kind}`),
    ...Object.entries(leftOut).map(([what, count]) =>
      `  ${String(count).padStart(5)} tensors left out: ${what}`
    ),
    ...otherTypeLines(tensors, quantize),
    ...errorLines(tensors),
    ...(refusal === undefined ? [] : [`compy cannot run this model: ${refusal}`]),
    "",
  ].join("\n");
}

/** What was quantised to another type than was asked for. */
function otherTypeLines(tensors: readonly TensorReport[], quantize: QuantizeTo | undefined): string[] {
  const others = tensors.filter(({ type, error }) => error && type.toLowerCase() !== quantize);
  if (others.length === 0) return [];
  const types = [...new Set(others.map(({ type }) => type))].join(", ");
  return [
    `  ${String(others.length).padStart(5)} of them in ${types}: ` +
    `their rows do not divide into blocks of ${quantize!.toUpperCase()}`,
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
