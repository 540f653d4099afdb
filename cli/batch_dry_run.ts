import type { Engine } from "../engine/types.ts";
import { checkInput } from "../jobs/check.ts";
import {
  forecastSeconds,
  type LineTokens,
  type Measured,
  measureLines,
  Sample,
  TokenCounter,
} from "../jobs/forecast.ts";
import type { OpenInput } from "../jobs/input.ts";
import type { BatchRequest, LineRefusal } from "../jobs/request.ts";
import { diskStorage } from "../jobs/storage.ts";
import { LINE_LIMITS } from "../lib/lines.ts";
import { listenForInterrupts } from "./batch_job.ts";
import { duration } from "./batch_progress.ts";
import { plainText } from "./batch_reporter.ts";
import type { BatchWorld, EngineOptions } from "./batch_world.ts";

/** Lines side by side where the options leave that open: near what a job comes to. */
const PARALLEL = 32;
/** Lines that run for the measurement, for each that runs at once. */
const SAMPLES = 3;

export interface DryRun {
  readonly input: string;
  readonly openInput: OpenInput;
  readonly engine: EngineOptions;
  readonly json: boolean;
}

interface Totals {
  prompt: number;
  /** Tokens that all answers may have together. */
  answer: number;
  longest: number;
}

/** Says what a job would take, and which of its lines could not be answered; nothing is written. Returns the exit code. */
export async function dryRun({ input: name, openInput, engine: options, json }: DryRun, world: BatchWorld) {
  const { host } = world;
  const input = await openInput(diskStorage, name);
  const { signal, drainSignal, release } = listenForInterrupts(host, () => {});
  const stop = AbortSignal.any([signal, drainSignal]);
  let engine: Engine | undefined;
  try {
    // Prompts of lines that are thrown away have no place on the disk.
    ({ engine } = await world.openEngine({ ...options, promptCache: undefined }));
    stop.throwIfAborted();
    const parallel = options.parallel ?? PARALLEL;
    const counter = new TokenCounter(engine, world.execute);
    const sample = new Sample<{ request: BatchRequest; tokens: LineTokens }>(SAMPLES * parallel);
    const totals: Totals = { prompt: 0, answer: 0, longest: 0 };
    const examine = async (request: BatchRequest) => {
      const tokens = await counter.tokensOf(request);
      if ("code" in tokens) return { ...tokens, param: null };
      totals.prompt += tokens.prompt;
      totals.answer += tokens.answer;
      totals.longest = Math.max(totals.longest, tokens.prompt);
      sample.add({ request, tokens });
    };
    const tell = json
      ? ({ customId, ...refusal }: LineRefusal) =>
        host.out(`${JSON.stringify({ event: "refused", custom_id: customId, ...refusal })}\n`)
      : ({ message }: LineRefusal) => host.out(`${plainText(`${name}: ${message}`)}\n`);
    const check = await checkInput(input, name, LINE_LIMITS, tell, { signal: stop, examine });
    const { lineCount, refusedCount } = check;
    const good = lineCount - refusedCount;
    const measured = good === 0
      ? undefined
      : await measureLines(engine, world.execute, sample.chosen, parallel, stop);
    host.out(
      json
        ? `${JSON.stringify(asJson(lineCount, refusedCount, totals, measured))}\n`
        : asText(name, lineCount, refusedCount, totals, measured),
    );
    return refusedCount === 0 ? 0 : 1;
  } catch (error) {
    if (!stop.aborted) throw error;
    host.err("Stopped\n");
    return 1;
  } finally {
    release();
    input.close();
    await engine?.close();
  }
}

function asText(
  name: string,
  lines: number,
  bad: number,
  totals: Totals,
  measured: Measured | undefined,
): string {
  const first = `${name}: ${lines} lines, ${bad === 0 ? "all can be asked" : `${bad} cannot be asked`}\n`;
  if (measured === undefined) return first;
  const { promptRate, outputRate, outputPerLine, unfinished } = measured;
  const output = Math.round((lines - bad) * outputPerLine);
  const cut = unfinished === 0 ? "" : `, ${unfinished} of them longer than this measured`;
  return first +
    `Prompts: ${totals.prompt} tokens, the longest has ${totals.longest}\n` +
    `Answers: about ${output} tokens, at most ${totals.answer}\n` +
    `Measured for ${duration(measured.seconds)} on ${measured.lines + unfinished} of the lines${cut}: ` +
    `${Math.round(promptRate)} prompt and ${Math.round(outputRate)} output tokens/s\n` +
    `It would take about ${duration(forecastSeconds(lines - bad, totals.prompt, measured))} here\n`;
}

function asJson(lines: number, bad: number, totals: Totals, measured: Measured | undefined) {
  return {
    event: "dry_run",
    lines,
    bad,
    prompt_tokens: totals.prompt,
    longest_prompt: totals.longest,
    output_tokens_limit: totals.answer,
    output_tokens: measured === undefined ? 0 : Math.round((lines - bad) * measured.outputPerLine),
    measured_lines: measured === undefined ? 0 : measured.lines + measured.unfinished,
    prompt_tokens_per_second: measured?.promptRate ?? null,
    output_tokens_per_second: measured?.outputRate ?? null,
    seconds: measured === undefined ? 0 : forecastSeconds(lines - bad, totals.prompt, measured),
  };
}
