import {
  forecastJob,
  type JobForecast,
  linesInFlight,
  type OpenedEngine,
  type OpenInput,
  withoutAlias,
} from "../../lib/batch/jobs.ts";
import { listenForInterrupts } from "./job.ts";
import { duration } from "./progress.ts";
import { RefusalList, refusedEvent } from "./reporter.ts";
import type { BatchWorld, EngineOptions } from "./world.ts";
import { escaped, jsonLine } from "../shared/escape.ts";

export interface DryRun {
  readonly input: string;
  readonly openInput: OpenInput;
  readonly engine: EngineOptions;
  readonly aliases: readonly string[];
  readonly json: boolean;
}

/** Prints the cost of a job and the lines that could not be answered. Writes no file. Returns the exit code. */
export async function dryRun(
  { input: name, openInput, engine: options, aliases, json }: DryRun,
  world: BatchWorld,
) {
  const { host } = world;
  const { signal, drainSignal, release } = listenForInterrupts(host, () => {});
  const stop = AbortSignal.any([signal, drainSignal]);
  let opened: OpenedEngine | undefined;
  try {
    // The answers are discarded, so their prompts are not stored on the disk.
    opened = await world.openEngine({ ...options, promptCache: undefined });
    stop.throwIfAborted();
    const { engine } = opened;
    const refusals = new RefusalList(name, (text) => host.out(`${text}\n`));
    const forecast = await forecastJob(name, {
      engine,
      execute: (on, request) => world.execute(on, { ...request, body: withoutAlias(aliases, request.body) }),
      parallel: options.parallel ?? linesInFlight().parallel,
      openInput,
      onRefusal: (refusal) => {
        if (json) host.out(jsonLine(refusedEvent(refusal)));
        else refusals.add(refusal);
      },
      signal: stop,
    });
    refusals.end();
    host.out(json ? jsonLine(asJson(forecast)) : asText(name, forecast));
    return forecast.bad === 0 ? 0 : 1;
  } catch (error) {
    if (!stop.aborted) throw error;
    host.err("Stopped\n");
    return 1;
  } finally {
    release();
    await opened?.engine.close();
  }
}

function asText(
  name: string,
  { lines, bad, prompt, longest, answer, measured, seconds }: JobForecast,
): string {
  const first = `${escaped(name)}: ${lines} lines, ${bad === 0 ? "all can run" : `${bad} cannot run`}\n`;
  if (measured === undefined) return first;
  const { promptRate, outputRate, outputPerLine, unfinished } = measured;
  const output = Math.round((lines - bad) * outputPerLine);
  const cut = unfinished === 0 ? "" : `, ${unfinished} of them longer than this measured`;
  return first +
    `Prompts: ${prompt} tokens, the longest has ${longest}\n` +
    `Answers: about ${output} tokens, at most ${answer}\n` +
    `Measured for ${duration(measured.seconds)} on ${measured.lines + unfinished} of the lines${cut}: ` +
    `${Math.round(promptRate)} prompt and ${Math.round(outputRate)} output tokens/s\n` +
    `It would take about ${duration(seconds)} here\n`;
}

function asJson({ lines, bad, prompt, longest, answer, measured, seconds }: JobForecast) {
  return {
    event: "dry_run",
    lines,
    bad,
    prompt_tokens: prompt,
    longest_prompt: longest,
    output_tokens_limit: answer,
    output_tokens: measured === undefined ? 0 : Math.round((lines - bad) * measured.outputPerLine),
    measured_lines: measured === undefined ? 0 : measured.lines + measured.unfinished,
    prompt_tokens_per_second: measured?.promptRate ?? null,
    output_tokens_per_second: measured?.outputRate ?? null,
    seconds,
  };
}
