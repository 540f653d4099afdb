import { lineEngine } from "../../lib/batch/jobs.ts";
import { failureOf, openConnection, runWorker, type WorkerCounts } from "../../lib/batch/workers.ts";
import { listenForInterrupts } from "./job.ts";
import { CREDENTIALS_HELP, NATS_SETTINGS, natsOption } from "./nats.ts";
import { type BatchWorld, ENGINE_SETTINGS, engineOptions } from "./world.ts";
import { MAX_PARALLEL } from "../shared/engine_settings.ts";
import { UsageError } from "../shared/flags.ts";
import { parallelOptions } from "../shared/model.ts";
import { readWords } from "../shared/read_settings.ts";
import { count, HELP_LINE, helpOf, onOff, text } from "../shared/settings.ts";
import { inFlags } from "../shared/words.ts";
import { jsonLine } from "../shared/escape.ts";

const DEFAULT_PARALLEL = 16;

const OPTIONS = {
  ...NATS_SETTINGS,
  nats: text("URL", {
    help: "the NATS server, nats://HOST[:PORT]; commas separate several (default: NATS_URL)",
  }),
  name: text("NAME", {
    default: "worker",
    look: { pattern: /^[A-Za-z0-9_.-]{1,60}$/, rule: "up to 60 of A-Z a-z 0-9 _ . -" },
    help: "the worker's name for the coordinator: up to 60 of A-Z a-z 0-9 _ . - (default: worker)",
  }),
  ...ENGINE_SETTINGS,
  parallel: count({
    min: 1,
    max: MAX_PARALLEL,
    default: DEFAULT_PARALLEL,
    help: `maximum number of lines that run at once, 1 to ${MAX_PARALLEL} (default: ${DEFAULT_PARALLEL})`,
  }),
  json: onOff({ help: "print events as JSON lines on standard output" }),
};

const HELP = `Answer lines of batches that run elsewhere, through a NATS server with JetStream.

Usage: deno task batch worker --nats nats://HOST[:PORT] [options]

${helpOf(OPTIONS)}${HELP_LINE}
Any number of workers, on this machine and others:
  nats-server -js                                                                    once, anywhere
  deno task batch worker --nats nats://HOST --model m.gguf                           wherever there are cores
  deno task batch run in.jsonl --out out.jsonl --nats nats://HOST --model m.gguf     where the files are

A worker joins every run that it hears of and that needs its model: the same file name, weights and chat template (compared by
fingerprint), --backend, --ctx, --kv-type, --activations, --pooling and --lora. Other runs refuse it, and both sides report why. It waits
for runs until it is stopped, and takes lines from several runs in turn.

Workers may start, die and stall at any moment. The coordinator's journal is the record: when a worker is silent for 15 seconds,
its lines go to another worker, and its later answers are dropped. An engine that fails is loaded again. If that does not help,
or if lines fail with server errors only, the worker gives its lines back and ends.

${CREDENTIALS_HELP}
Requests and answers pass through the server: use tls:// and credentials on a network that you do not control.

Ctrl-C once: end the running lines, then stop. Twice: stop now; the lines go to others.
Exit code: 0 stopped on request, 1 failed, 2 wrong usage.

Example:
  deno task batch worker --nats nats://10.0.0.5 --model qwen3-4b-q4_0.gguf --parallel 32
`;

const TELL_MS = 60_000;

/** Runs `batch worker …`. Returns the exit code. */
export async function workerCommand(args: readonly string[], world: BatchWorld): Promise<number> {
  const { host } = world;
  const given = readWords(OPTIONS, args, HELP, { print: host.out });
  if (given === undefined) return 0;
  const { values } = given;
  const target = natsOption(values, Deno.env.get("NATS_URL") || undefined);
  if (target === undefined) throw new UsageError("--nats is missing: the server, such as nats://127.0.0.1");
  const name = `${values.name}-${crypto.randomUUID().slice(0, 6)}`;
  const { parallel, kvShare } = parallelOptions(given);
  const options = { ...engineOptions(values), parallel, kvShare };

  const note = (text: string) => {
    if (given.json) return host.out(jsonLine({ event: "note", message: text }));
    host.err(`${text}\n`);
  };
  const { drainSignal, signal, release } = listenForInterrupts(
    host,
    () => note("Stopping when the lines in flight are done; press Ctrl-C again to stop now"),
  );
  try {
    await using opened = new AsyncDisposableStack();
    // The connection opens first, so that an unreachable server fails before a large model is loaded.
    const connection = await openConnection(target, name, note);
    opened.defer(() => connection.nats.close());
    const local = await world.openEngine({ ...options, reload: true });
    const { engine, identity } = local;
    opened.defer(() => engine.close());
    const counts: WorkerCounts = { lines: 0 };
    const timer = setInterval(() => note(`${counts.lines} lines answered so far`), TELL_MS);
    opened.defer(() => clearInterval(timer));
    note(
      `Worker ${name} waits for runs at ${connection.where}: ${engine.model.id}, ${parallel} lines at once`,
    );
    await runWorker({
      connection,
      model: identity,
      name,
      parallel,
      answerer: lineEngine(local, world.execute).execute,
      note,
      counts,
      drainSignal,
      signal,
      engineFailed: failureOf(engine),
    });
    note(`Stopped; ${counts.lines} lines answered`);
    return 0;
  } catch (error) {
    const message = inFlags(error);
    if (given.json) host.out(jsonLine({ event: "failed", message }));
    else note(`Error: ${message}`);
    return 1;
  } finally {
    release();
  }
}
