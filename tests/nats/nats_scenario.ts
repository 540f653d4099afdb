import { assert } from "@std/assert";
import { fromFileUrl } from "@std/path";
import { jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import { runBatch } from "../../jobs/run/runner.ts";
import { STREAM } from "../../jobs/nats/wire.ts";
import { seeded } from "../batch/sim_storage.ts";
import { answerTo, jobIn, LEASE_MS, SETTINGS } from "./nats_child.ts";
import { NatsServer } from "./nats_server.ts";
import { TEST_LIMITS } from "../../jobs/testing.ts";

/*
 * Compares a constantly disturbed batch job over NATS with an undisturbed one, byte for byte. It has three workers on
 * loopback and a real nats-server. The disturbances are spread evenly over the job's lines (`deno task storms --only
 * nats`).
 */

const CHILD = fromFileUrl(new URL("nats_child.ts", import.meta.url));
export const WORKERS = 3;

/** The disturbances of one round, before shuffling. */
const KINDS = [
  "purge",
  "remove stream",
  "kill worker",
  "stall worker",
  "remove consumer",
  "stall worker",
  "kill worker",
  "purge",
  "kill server",
  "kill coordinator",
  "broken worker",
  "idle run",
  "cancelled run",
  "no workers",
] as const;

type Kind = typeof KINDS[number];

export interface CampaignOptions {
  readonly disturbances: number;
  readonly lines: number;
  /** Milliseconds per line in the engine. */
  readonly lineMs: number;
  readonly seed: number;
}

export interface CampaignReport {
  readonly kinds: Record<string, number>;
  readonly lost: number;
  readonly doubled: number;
  /** Whether the files equal those of an undisturbed run, byte for byte. */
  readonly same: boolean;
  /** Number of repeated runs of lines. */
  readonly repeated: number;
  /** The coordinators' counts: lines handed out again, late answers dropped. */
  readonly handedOutAgain: number;
  readonly late: number;
  readonly seconds: number;
}

export async function campaign(options: CampaignOptions): Promise<CampaignReport> {
  const folder = await Deno.makeTempDir({ prefix: "batch-nats-" });
  try {
    await writeInput(folder, options.lines);
    await undisturbed(folder);
    await using server = await NatsServer.start();
    await using job = new DisturbedJob(server, folder, options);
    const start = performance.now();
    const kinds = await job.run();
    return { kinds, ...await compare(folder), ...job.stats, seconds: (performance.now() - start) / 1000 };
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

async function writeInput(folder: string, lines: number): Promise<void> {
  const text = Array.from({ length: lines }, (_, n) => {
    const body = { n, prompt: `p${n}` };
    return JSON.stringify({ custom_id: `id-${n}`, method: "POST", url: "/v1/completions", body });
  });
  await Deno.writeTextFile(`${folder}/in.jsonl`, text.join("\n"));
}

async function undisturbed(folder: string): Promise<void> {
  const execute = ({ body }: { body: Record<string, unknown> }) =>
    Promise.resolve(answerTo(body.n as number));
  await runBatch({
    ...jobIn(folder, "expected"),
    limits: TEST_LIMITS,
    connect: () => Promise.resolve({ settings: SETTINGS, execute }),
  });
}

export async function compare(folder: string) {
  const read = (name: string) => Deno.readTextFile(`${folder}/${name}`);
  const names = ["jsonl", "err.jsonl"];
  const found = await Promise.all(names.map((end) => read(`out.${end}`)));
  const wanted = await Promise.all(names.map((end) => read(`expected.${end}`)));
  const ids = (texts: string[]) =>
    texts.join("").split("\n").filter(Boolean).map((line) => JSON.parse(line).custom_id as string);
  const [foundIds, wantedIds] = [ids(found), ids(wanted)];
  const unique = new Set(foundIds);
  const executed = (await read("executed")).trim().split("\n");
  return {
    lost: wantedIds.filter((id) => !unique.has(id)).length,
    doubled: foundIds.length - unique.size,
    same: found.every((text, i) => text === wanted[i]),
    repeated: executed.length - new Set(executed).size,
  };
}

class DisturbedJob implements AsyncDisposable {
  readonly stats = { handedOutAgain: 0, late: 0 };
  private readonly random: () => number;
  private readonly workers: Deno.ChildProcess[];
  private readonly stalls = new Set<Promise<void>>();
  /** Broken workers and further runs during the job. Some end by themselves and must succeed. */
  private readonly others: { child: Deno.ChildProcess; ends: boolean }[] = [];
  private coordinator!: Deno.ChildProcess;
  private ended!: Promise<number>;
  private done = 0;
  private progress = Promise.withResolvers<void>();
  private names = 0;

  constructor(
    private readonly server: NatsServer,
    private readonly folder: string,
    private readonly options: CampaignOptions,
  ) {
    this.random = seeded(options.seed);
    this.workers = Array.from({ length: WORKERS }, () => this.spawnWorker());
    this.startCoordinator();
  }

  /** Ends with the job. Returns the count of each disturbance. */
  async run(): Promise<Record<string, number>> {
    const { disturbances, lines } = this.options;
    const counts: Record<string, number> = {};
    for (let n = 0; n < disturbances; n++) {
      // No disturbance during the last lines, so that the job can recover.
      await this.reached(Math.floor(0.95 * lines * n / disturbances));
      const kind = KINDS[n % KINDS.length];
      await this.disturb(kind);
      counts[kind] = (counts[kind] ?? 0) + 1;
    }
    assert(await this.ended === 0, "the coordinator failed");
    await this.endOthers();
    return counts;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const others = this.others.map(({ child }) => child);
    for (const child of [...this.workers, ...others, this.coordinator]) await kill(child);
    await Promise.all(this.stalls);
  }

  private async disturb(kind: Kind): Promise<void> {
    switch (kind) {
      case "kill worker": {
        const [victim] = this.workers.splice(Math.floor(this.random() * WORKERS), 1);
        this.workers.push(this.spawnWorker());
        return await kill(victim);
      }
      case "stall worker":
        return this.stall(this.workers[Math.floor(this.random() * WORKERS)]);
      case "kill server":
        return await this.server.restart();
      case "kill coordinator":
        await kill(this.coordinator);
        return this.startCoordinator();
      case "broken worker":
        return this.startOther("broken", true);
      case "idle run":
        // The previous coordinator is killed and leaves its consumer behind.
        for (const { child, ends } of this.others) if (!ends) await kill(child);
        return this.startOther("idle", false);
      case "cancelled run":
        return this.startOther("cancelled", true);
      case "no workers":
        return await this.leaveAlone();
      default:
        await this.wipe(kind);
    }
  }

  private startOther(role: string, ends: boolean): void {
    this.others.push({ child: this.spawn(role, [`${role}${this.names++}`], "null"), ends });
  }

  /** Stops the coordinator for longer than a lease. */
  private async leaveAlone(): Promise<void> {
    for (const worker of this.workers.splice(0)) await kill(worker);
    await new Promise((resolve) => setTimeout(resolve, 1.5 * LEASE_MS));
    while (this.workers.length < WORKERS) this.workers.push(this.spawnWorker());
  }

  /** A broken worker without lines waits for some. */
  private async endOthers(): Promise<void> {
    for (const { child, ends } of this.others.splice(0)) {
      if (ends) await Promise.race([child.status, new Promise((resolve) => setTimeout(resolve, 5000))]);
      await kill(child);
      const { code, signal } = await child.status;
      assert(signal === "SIGKILL" || code === 0, `a process beside the job ended with ${code}`);
    }
  }

  /** Stops a worker for shorter or longer than a lease. */
  private stall(worker: Deno.ChildProcess): void {
    worker.kill("SIGSTOP");
    const stall = new Promise((resolve) => setTimeout(resolve, (0.2 + 2.3 * this.random()) * LEASE_MS)).then(
      () => {
        try {
          worker.kill("SIGCONT");
        } catch {
          // The worker was killed in the meantime.
        }
      },
    ).finally(() => this.stalls.delete(stall));
    this.stalls.add(stall);
  }

  private async wipe(kind: Kind): Promise<void> {
    const nats = await connect({ servers: this.server.url });
    try {
      const manager = await jetstreamManager(nats);
      if (kind === "purge") await manager.streams.purge(STREAM);
      if (kind === "remove stream") await manager.streams.delete(STREAM);
      if (kind !== "remove consumer") return;
      for await (const { name } of manager.consumers.list(STREAM)) {
        await manager.consumers.delete(STREAM, name);
      }
    } catch (error) {
      // The queue may already be empty, because the job has not recovered from the last wipe.
      if (!/not found/.test((error as Error).message)) throw error;
    } finally {
      await nats.close();
    }
  }

  private async reached(lines: number): Promise<void> {
    while (this.done < lines) {
      const ended = await Promise.race([this.progress.promise, this.ended.then((code) => code)]);
      assert(ended === undefined, `the coordinator ended with ${ended} after ${this.done} lines`);
      this.progress = Promise.withResolvers();
    }
  }

  private spawnWorker(): Deno.ChildProcess {
    return this.spawn("worker", [`w${this.names++}`, String(this.options.lineMs)], "null");
  }

  private startCoordinator(): void {
    const child = this.coordinator = this.spawn("coordinator", [], "piped");
    const said = this.listen(child);
    this.ended = child.status.then(async ({ code, signal }) => {
      await said;
      // A killed process needs no wait.
      return signal === null ? code : await new Promise<never>(() => {});
    });
  }

  private async listen(child: Deno.ChildProcess): Promise<void> {
    let text = "";
    let counted = { handedOutAgain: 0, late: 0 };
    for await (const part of child.stdout.pipeThrough(new TextDecoderStream())) {
      const lines = (text + part).split("\n");
      text = lines.pop()!;
      for (const [, done, handedOutAgain, late] of lines.map((line) => line.split(" ").map(Number))) {
        assert(done >= this.done, "counts never go back");
        this.done = done;
        this.stats.handedOutAgain += handedOutAgain - counted.handedOutAgain;
        this.stats.late += late - counted.late;
        counted = { handedOutAgain, late };
        this.progress.resolve();
      }
    }
  }

  private spawn(role: string, more: string[], stdout: "null" | "piped"): Deno.ChildProcess {
    const permissions = [
      "--allow-net=127.0.0.1",
      `--allow-read=${this.folder}`,
      `--allow-write=${this.folder}`,
    ];
    const args = ["run", "-q", ...permissions, CHILD, role, this.server.url, this.folder, ...more];
    return new Deno.Command(Deno.execPath(), { args, stdin: "null", stdout, stderr: "inherit" }).spawn();
  }
}

async function kill(child: Deno.ChildProcess): Promise<void> {
  try {
    child.kill("SIGKILL");
  } catch {
    // The process has already ended.
  }
  await child.status;
}
