import type { AnyBackend } from "../engine/backend/choose.ts";
import { loadEngine } from "../engine/load/load.ts";
import type { Engine } from "../engine/mod.ts";
import { median } from "../bench/samples.ts";
import { print } from "../bench/shell.ts";
import { asTable } from "../bench/table.ts";

const PROMPT = "Tell me a story.";
/** The token of wrong drafts. It is never the right token. */
const WRONG = 1;

/** Acceptance rates from papers, by the token's position in a draft. The last rate also applies to later positions. */
export const REPORTED: readonly (readonly [name: string, rates: readonly number[]])[] = [
  // "DeepSeek-V3 Technical Report" (arXiv 2412.19437), 5.4.3: 0.85 to 0.90 for the first token, depending on the topic.
  // The rates of later positions fall as in MiMo's report.
  ["text", [0.85, 0.77, 0.7]],
  // "MiMo" (arXiv 2505.07608), 2.3: reasoning about mathematics and code. 0.90 for the first token, over 0.75 for the third.
  ["code", [0.9, 0.83, 0.75]],
  ["useless", [0.05]],
];

/** The expected answer, from which drafts are made, and the acceptance rates. */
interface Script {
  answer: readonly number[];
  promptLength: number;
  rates: readonly number[];
}

/**
 * Replaces the draft layer's candidates with the script's tokens. The layer still runs, so a draft takes its usual time.
 */
function follow(backend: AnyBackend, script: Script): void {
  const step = backend.step.bind(backend);
  const random = randomOf(1);
  let place = 0;
  backend.step = async (input) => {
    const output = await step(input);
    if (!input.drafts) {
      place = 0;
      return output;
    }
    // An ordinary draft step has one row and follows the step of the previous token. A pass has one row per drafted
    // token.
    const inOnePass = input.tokens.length > 1;
    const [{ cached }] = input.sequences;
    const rows = output.rows.map((row) => {
      const rate = script.rates[Math.min(place, script.rates.length - 1)];
      const next = script.answer[cached + 1 + (inOnePass ? place : 0) - script.promptLength];
      place++;
      const token = random() < rate && next !== undefined ? next : WRONG;
      return { ...row, ids: Int32Array.of(token), logits: Float32Array.of(Math.log(rate)), logSumExp: 0 };
    });
    return { ...output, rows };
  };
}

/** Returns a seeded random generator of numbers from 0 to 1 (Lehmer generator, modulus 2^31 - 1). */
function randomOf(seed: number): () => number {
  let state = seed;
  return () => (state = state * 48271 % 0x7fffffff) / 0x7fffffff;
}

interface Answer {
  readonly tokens: readonly number[];
  readonly ms: number;
}

async function ask(engine: Engine, prompt: number[], maxTokens: number, round: number): Promise<Answer> {
  const tokens: number[] = [];
  const request = {
    prompt,
    maxTokens,
    ignoreEos: true,
    sampling: { temperature: 0 },
    cacheSalt: `${round}`,
  };
  let first = 0;
  for await (const event of engine.submit(request)) {
    if (event.type !== "token") continue;
    first ||= performance.now(); // the time excludes the prompt
    tokens.push(event.token);
  }
  return { tokens, ms: performance.now() - first };
}

/**
 * Prints the speed-up of answers by a model's own draft layer (MTP), or by a drafter in its own file, at the acceptance
 * rates that papers report. Seeded weights never draft correct tokens. Therefore a script proposes the answer's next
 * tokens, each with the reported probability. Answers without and with drafts alternate. The first pair per rate is not
 * counted, because it trains the engine's cost model.
 */
export async function scripted(
  { model, draft }: { readonly model: string; readonly draft?: string },
  maxTokens: number,
  rounds: number,
): Promise<void> {
  const options = { model, parallel: 1, contextLength: 1024 };
  const plain = (await loadEngine({ ...options, speculate: "off" })).engine;
  const speculate = draft === undefined ? "mtp" : "draft";
  const { engine, backend } = await loadEngine({ ...options, draft, speculate });
  const script: Script = { answer: [], promptLength: 0, rates: [] };
  follow(backend, script);
  const rows = [[
    "drafts",
    "acceptance rates",
    "speed-up",
    "min to max",
    "ms/token",
    "tokens/step",
    "drafted",
    "accepted",
  ]];
  for (const [name, rates] of REPORTED) {
    const pairs: { without: number; with: number }[] = [];
    const count = { steps: 0, acceptedTokens: 0, draftedTokens: 0 };
    for (let round = 0; round <= rounds; round++) {
      const prompt = plain.encodePrompt(PROMPT);
      const expected = await ask(plain, prompt, maxTokens, round);
      Object.assign(script, { answer: expected.tokens, promptLength: prompt.length, rates });
      const before = engine.stats();
      const answer = await ask(engine, prompt, maxTokens, round);
      const after = engine.stats();
      if (`${answer.tokens}` !== `${expected.tokens}`) throw new Error("Drafts changed the answer");
      if (round === 0) continue;
      pairs.push({ without: expected.ms, with: answer.ms });
      for (const key of ["steps", "acceptedTokens", "draftedTokens"] as const) {
        count[key] += after[key] - before[key];
      }
    }
    const gains = pairs.map((pair) => pair.without / pair.with);
    rows.push([
      name,
      rates.join(", "),
      median(gains).toFixed(2),
      `${Math.min(...gains).toFixed(2)} to ${Math.max(...gains).toFixed(2)}`,
      (median(pairs.map((pair) => pair.with)) / maxTokens).toFixed(0),
      (rounds * maxTokens / count.steps).toFixed(2),
      `${count.draftedTokens}`,
      `${count.acceptedTokens}`,
    ]);
  }
  for (const one of [plain, engine]) await one.close();
  print(asTable(rows));
}
