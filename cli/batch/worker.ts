import { linesOf } from "../../lib/batch/jobs.ts";
import { failureOf, openConnection, runWorker, type WorkerCounts } from "../../lib/batch/workers.ts";
import { listenForInterrupts } from "./job.ts";
import { CREDENTIALS_HELP, NATS_FLAGS, natsFlags } from "./nats.ts";
import { type BatchWorld, ENGINE_FLAGS, ENGINE_HELP, ENGINE_SWITCHES, engineOptions } from "./world.ts";
import { Flags, UsageError } from "../shared/flags.ts";
import { sizeOptions } from "../shared/model.ts";
import { inFlags } from "../shared/words.ts";

const DEFAULT_PARALLEL = 16;

const HELP = `Answer lines of batches that run elsewhere, handed out through a NATS server with JetStream.

Usage: deno task batch worker --nats nats://HOST[:PORT] [options]

  --nats URL       the NATS server, several with commas between them (default: NATS_URL)
  --nats-creds F   a credentials file for it
  --name NAME      how the coordinator calls this worker: up to 60 of A-Z a-z 0-9 _ . - (default: worker)
${ENGINE_HELP}
                   Without --parallel there are ${DEFAULT_PARALLEL} lines.
  --json           say what happens as JSON lines on standard output
  --help           this text

Any number of workers, on this machine and others:
  nats-server -js                                                                    once, anywhere
  deno task batch worker --nats nats://HOST --model m.gguf                           wherever there are cores
  deno task batch run in.jsonl --out out.jsonl --nats nats://HOST --model m.gguf     where the files are

A worker takes part in every run that it hears of and that wants its model: the same file name, weights and chat template
(their fingerprints), --backend, --ctx, --kv-type, --activations and --pooling. Other runs refuse it, and both sides say why. It waits for runs until
it is stopped, and takes the lines of several by turns.

Workers may come, die and stall at any moment: the coordinator's journal is the record, what a worker had in hand goes
to another after 15 seconds, and an answer that comes after that is dropped. An engine that fails is loaded again; where
that does not help, or lines fail with nothing but server errors, the worker hands its lines to others at once and ends.

${CREDENTIALS_HELP}
Requests and answers travel through the server: on a network that is not yours use tls:// and credentials.

Ctrl-C once: end the lines in hand, then stop. Twice: stop now; the lines go to others.
Exit code: 0 stopped when asked to, 1 failed, 2 wrong usage.

Example:
  deno task batch worker --nats nats://10.0.0.5 --model qwen3-4b-q4_0.gguf --parallel 32
`;

const TELL_MS = 60_000;

/** `batch worker …`. Returns the exit code. */
export async function workerCommand(args: readonly string[], world: BatchWorld): Promise<number> {
  const flags = new Flags(args, {
    values: [...NATS_FLAGS, "name", ...ENGINE_FLAGS],
    switches: ENGINE_SWITCHES,
  });
  const { host } = world;
  if (flags.help) {
    host.out(HELP);
    return 0;
  }
  const target = natsFlags(flags, Deno.env.get("NATS_URL") || undefined);
  if (target === undefined) throw new UsageError("--nats is missing: the server, such as nats://127.0.0.1");
  const given = flags.text("name") ?? "worker";
  if (!/^[A-Za-z0-9_.-]{1,60}$/.test(given)) {
    throw new UsageError(`--name must be up to 60 of A-Z a-z 0-9 _ . - (got "${given}")`);
  }
  const name = `${given}-${crypto.randomUUID().slice(0, 6)}`;
  const { parallel, kvShare } = sizeOptions(flags, DEFAULT_PARALLEL);
  const options = { ...engineOptions(flags), parallel, kvShare };

  const note = (text: string) => {
    if (flags.json) return host.out(`${JSON.stringify({ event: "note", message: text })}\n`);
    // Much of it comes from the network and must not steer the terminal.
    host.err(`${text.replace(/[\p{Cc}\p{Cf}\u2028\u2029]/gu, "\ufffd")}\n`);
  };
  const { drainSignal, signal, release } = listenForInterrupts(
    host,
    () => note("Stopping when the lines in hand have ended; Ctrl-C again stops now"),
  );
  try {
    await using opened = new AsyncDisposableStack();
    // A server that is not there is worth knowing before a large model is loaded.
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
      answerer: linesOf(local, world.execute).execute,
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
    if (flags.json) host.out(`${JSON.stringify({ event: "failed", message })}\n`);
    else note(`Error: ${message}`);
    return 1;
  } finally {
    release();
  }
}
