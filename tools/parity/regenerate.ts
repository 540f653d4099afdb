/**
 * Writes tests/models/parity/ (`deno task parity [--all] [ARCHITECTURE …]`): exact answers from exact/, and llama.cpp's
 * distance from them. Covers the models of tests/models/parity_cases.ts, or those of the given architectures, except
 * models that the table already answers; `--all` covers these too. README.md in this folder lists the required programs.
 */
import { fromFileUrl, join } from "@std/path";
import {
  digest,
  type Distance,
  type FileAnswers,
  packStep,
  PARITY_FILES,
  parityBytes,
  type ParityFile,
  type ParityTable,
  prompt,
  readTable,
  tableUrl,
  TOP,
  unpackStep,
} from "../../tests/models/parity_cases.ts";
import { SYNTH_MODELS } from "../../testing/synth/registry.ts";
import { EXACT, peerFolder, run } from "./programs.ts";
import type { Architecture } from "../../testing/synth/synth.ts";

/** A line of exact/'s output. */
interface ExactLine {
  readonly model: string;
  readonly prompt: readonly number[];
  readonly steps: readonly { token: number; top: [id: number, logprob: number][]; rounded?: number[] }[];
}

/** A line of llama_cpp.mjs's output. */
interface PeerLine {
  readonly model: string;
  readonly prompt: number;
  readonly steps: readonly number[][];
}

if (import.meta.main) {
  const folder = await Deno.makeTempDir({ prefix: "compy-parity-" });
  try {
    const all = [...new Set(PARITY_FILES.map(({ options }) => options.architecture))];
    const named = Deno.args.filter((arg) => arg !== "--all") as Architecture[];
    for (const architecture of named.length > 0 ? named : all) {
      const files = PARITY_FILES.filter(({ options }) => options.architecture === architecture);
      if (files.length === 0) {
        throw new Error(`No architecture "${architecture}"; there are ${all.join(", ")}`);
      }
      const hashes = await writeModels(files, folder);
      const known = Deno.args.includes("--all") ? {} : await knownAnswers(architecture, files, hashes);
      const rest = files.filter(({ name }) => !known[name]);
      if (rest.length === 0) continue;
      const exact = await exactAnswers(rest, folder);
      const found = { ...known, ...answersOf(hashes, exact, await peerAnswers(folder, exact)) };
      const table: ParityTable = { files: Object.fromEntries(files.map(({ name }) => [name, found[name]])) };
      await Deno.writeTextFile(tableUrl(architecture), JSON.stringify(table, undefined, 2) + "\n");
    }
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** Writes model files; returns their digests by name. */
async function writeModels(files: readonly ParityFile[], folder: string): Promise<Map<string, string>> {
  const hashes = new Map<string, string>();
  for (const file of files) {
    const bytes = parityBytes(file);
    await Deno.writeFile(join(folder, `${file.name}.gguf`), bytes);
    hashes.set(file.name, await digest(bytes));
  }
  return hashes;
}

/** Returns the table's answers to files that have not changed since. */
async function knownAnswers(
  architecture: Architecture,
  files: readonly ParityFile[],
  hashes: Map<string, string>,
): Promise<Record<string, FileAnswers>> {
  const table = await readTable(architecture).catch(() => ({ files: {} }) as ParityTable);
  return Object.fromEntries(files.flatMap(({ name, prompts, steps, rounded = false }) => {
    const answers = table.files[name];
    const isKnown = answers?.sha256 === hashes.get(name) && prompts.every((length) => {
      const answer = answers.cases[length];
      return answer?.steps.length === steps && ("rounded" in answer) === rounded;
    });
    return isKnown ? [[name, answers]] : [];
  }));
}

/** Returns the output lines of exact/. */
async function exactAnswers(files: readonly ParityFile[], folder: string): Promise<string> {
  const lines: string[] = [];
  for (const { name, options, prompts, steps, rounded } of files) {
    const { traits } = SYNTH_MODELS[options.architecture];
    const how = ["--steps", `${steps}`, "--top", `${TOP}`, ...rounded ? ["--kv", "int16"] : []];
    if (traits) how.push("--facts", JSON.stringify(traits));
    const args = [EXACT, ...how, join(folder, `${name}.gguf`)];
    lines.push(await run("python3", args, folder, JSON.stringify(prompts.map(prompt))));
  }
  return lines.join("");
}

/** Returns the output of llama_cpp.mjs, which must run in the folder with the package. */
async function peerAnswers(folder: string, exact: string): Promise<string> {
  return await run("node", [here("llama_cpp.mjs"), folder], await peerFolder(folder), exact);
}

function here(name: string): string {
  return fromFileUrl(new URL(name, import.meta.url));
}

function answersOf(
  hashes: Map<string, string>,
  exactLines: string,
  peerLines: string,
): Record<string, FileAnswers> {
  const peers = new Map(
    parse<PeerLine>(peerLines).map((line) => [`${line.model} ${line.prompt}`, line.steps]),
  );
  const files: Record<string, FileAnswers> = {};
  for (const { model, prompt, steps } of parse<ExactLine>(exactLines)) {
    const pack = (top: [number, number][], logprobs: number[]) =>
      packStep({ ids: top.map(([id]) => id), logprobs });
    const packed = steps.map(({ top }) => pack(top, top.map(([, p]) => p)));
    const rounded = steps.flatMap((step) => step.rounded ? [pack(step.top, step.rounded)] : []);
    const answers = files[model] ??= { sha256: hashes.get(model)!, cases: {} };
    const llamaCpp = distance(packed, peers.get(`${model} ${prompt.length}`)!);
    Object.assign(answers.cases, {
      [prompt.length]: { llamaCpp, steps: packed, ...rounded.length > 0 && { rounded } },
    });
  }
  return files;
}

function parse<T>(lines: string): T[] {
  return lines.trimEnd().split("\n").map((line) => JSON.parse(line));
}

function distance(packed: readonly string[], steps: readonly number[][]): Distance {
  const distances = packed.flatMap((text, i) => {
    return unpackStep(text).logprobs.map((exact, k) => Math.abs(exact - steps[i][k]));
  });
  const round = (value: number) => Math.round(value * 1e5) / 1e5;
  return {
    max: round(Math.max(...distances)),
    mean: round(distances.reduce((a, b) => a + b, 0) / distances.length),
  };
}
