/**
 * Writes tests/parity_expected.json (`deno task parity`): exact answers from exact.py, and how far llama.cpp is from
 * them, for every model of tests/parity_cases.ts; with the name of an architecture for its models, and keeps the others.
 * README.md beside this file says what must be installed.
 */
import { fromFileUrl, join } from "@std/path";
import {
  digest,
  type Distance,
  type FileAnswers,
  packStep,
  PARITY_FILES,
  parityBytes,
  type ParityTable,
  prompt,
  PROMPT_LENGTHS,
  STEPS,
  TABLE_URL,
  TOP,
  unpackStep,
} from "../../tests/parity_cases.ts";
import { PEER, run } from "./programs.ts";

/** A line of exact.py. */
interface ExactLine {
  readonly model: string;
  readonly prompt: readonly number[];
  readonly steps: readonly { token: number; top: [id: number, logprob: number][] }[];
}

/** A line of llama_cpp.mjs. */
interface PeerLine {
  readonly model: string;
  readonly prompt: number;
  readonly steps: readonly number[][];
}

/** The models that are asked for, all or of one architecture. */
const [ASKED] = Deno.args;
const FILES = PARITY_FILES.filter(({ options }) => ASKED === undefined || options.architecture === ASKED);

if (import.meta.main) {
  const folder = await Deno.makeTempDir({ prefix: "compy-parity-" });
  try {
    const hashes = await writeModels(folder);
    const exact = await exactAnswers(folder);
    const peer = await peerAnswers(folder, exact);
    const made = tableOf(hashes, exact, peer).files;
    const kept: ParityTable["files"] = JSON.parse(await Deno.readTextFile(TABLE_URL)).files;
    const files = Object.fromEntries(
      PARITY_FILES.map(({ name }) => [name, made[name] ?? kept[name]]).filter(([, answers]) => answers),
    );
    await Deno.writeTextFile(TABLE_URL, JSON.stringify({ files }, undefined, 2) + "\n");
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** Writes all model files; returns their digests by name. */
async function writeModels(folder: string): Promise<Map<string, string>> {
  const hashes = new Map<string, string>();
  for (const file of FILES) {
    const bytes = parityBytes(file);
    await Deno.writeFile(join(folder, `${file.name}.gguf`), bytes);
    hashes.set(file.name, await digest(bytes));
  }
  return hashes;
}

/** The lines of exact.py. */
async function exactAnswers(folder: string): Promise<string> {
  const models = FILES.map(({ name }) => join(folder, `${name}.gguf`));
  const args = [here("exact.py"), "--steps", `${STEPS}`, "--top", `${TOP}`, ...models];
  return await run("python3", args, folder, JSON.stringify(PROMPT_LENGTHS.map(prompt)));
}

/** The lines of llama_cpp.mjs, which needs the package in the folder it runs in. */
async function peerAnswers(folder: string, exact: string): Promise<string> {
  await run(
    "npm",
    ["install", "--omit=optional", "--no-audit", "--no-fund", "--prefix", folder, ...PEER],
    folder,
  );
  return await run("node", [here("llama_cpp.mjs"), folder], folder, exact);
}

function here(name: string): string {
  return fromFileUrl(new URL(name, import.meta.url));
}

function tableOf(hashes: Map<string, string>, exactLines: string, peerLines: string): ParityTable {
  const peers = new Map(
    parse<PeerLine>(peerLines).map((line) => [`${line.model} ${line.prompt}`, line.steps]),
  );
  const files: Record<string, FileAnswers> = {};
  for (const { model, prompt, steps } of parse<ExactLine>(exactLines)) {
    const packed = steps.map(({ top }) =>
      packStep({ ids: top.map(([id]) => id), logprobs: top.map(([, p]) => p) })
    );
    const answers = files[model] ??= { sha256: hashes.get(model)!, cases: {} };
    const llamaCpp = distance(packed, peers.get(`${model} ${prompt.length}`)!);
    Object.assign(answers.cases, { [prompt.length]: { llamaCpp, steps: packed } });
  }
  return { files };
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
