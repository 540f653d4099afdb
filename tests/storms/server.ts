import { assertEquals } from "@std/assert";
import {
  chatLine,
  createBatch,
  inDataFolder,
  linesOf,
  upload,
  waitFor,
  withBatches,
} from "../../routes/testing_batches.ts";
import { withLiveServer } from "../../testing/live_server.ts";
import { Random } from "../../testing/random.ts";
import { storm as badConnections } from "../server/connection_storm.ts";
import { disconnect, stopInMidStream, streamAll, truth } from "../server/endpoint_scenario.ts";
import { serverKills } from "./server_kills.ts";
import { type Figures, quantile, type Scenario, type Storm } from "./storm.ts";

/** The queue has room for 256 requests: with as many running, 500 streams are open at once. */
const CROWDED = ["--parallel", "256"];
const WAVE = 500;
const WAVE_MS = 3000;
const DESCRIPTORS = 256;

async function disconnects({ count, seed }: Storm): Promise<Figures> {
  await withLiveServer(CROWDED, async (server) => {
    await disconnect(server, await truth(server.url), count, seed);
  });
  return {};
}

async function streams({ count }: Storm): Promise<Figures> {
  await withLiveServer(CROWDED, async (server) => {
    await streamAll(server, await truth(server.url), count);
  });
  return {};
}

async function sigterms({ count, seed }: Storm): Promise<Figures> {
  let expected: string[] = [];
  await withLiveServer(CROWDED, async ({ url }) => void (expected = await truth(url)));
  for (let i = 0; i < count; i++) await stopInMidStream(CROWDED, expected, seed + i);
  return {};
}

/** Runs misbehaving clients. Linux only, because it counts the server's file descriptors. */
async function connections({ count, seed, say }: Storm): Promise<Figures> {
  let figures: Figures = {};
  await inDataFolder((path) =>
    withLiveServer(
      [],
      async (server) => {
        const options = { connections: count, wave: WAVE, waveMs: WAVE_MS, seed };
        const { answered, deferred, health, batchLines, descriptors } = await badConnections(server, options);
        say(`${deferred} chats were told to come back later`);
        figures = {
          chats: answered,
          batch_lines: batchLines,
          leaked_descriptors: descriptors.after - descriptors.before,
          health_p99_ms: quantile(health, 0.99),
        };
      },
      path,
      DESCRIPTORS,
    )
  );
  return figures;
}

const YEAR = 365 * 24 * 3600;
const JUMPS = [-50 * YEAR, -25 * 3600, -60, 60, 25 * 3600, 50 * YEAR];
const JUMP_LINES = 30;
const SWEEP_MS = 5;

/** The clock jumps while a batch runs, and again after a restart. Each line is answered once. */
async function clockJumps({ count, seed }: Storm): Promise<Figures> {
  const random = new Random(seed);
  const ids = Array.from({ length: JUMP_LINES }, (_, i) => `line-${i}`);
  const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
  let [answered, expired] = [0, 0];
  for (let jump = 0; jump < count; jump++) {
    await inDataFolder(async (path) => {
      let clock = Math.floor(Date.now() / 1000);
      const steady = () => performance.now() / 1000;
      const options = { now: () => clock, steady, sweepMs: SWEEP_MS, tokenMs: 1 };
      const jumpInMidBatch = async () => {
        await sleep(random.below(40));
        clock += JUMPS[random.below(JUMPS.length)];
        await sleep(5 * SWEEP_MS + random.below(40)); // a process that ends before it sees the jump cannot tell it from a pause
      };
      let id = "";
      await withBatches(path, options, async ({ client, service }) => {
        id = (await createBatch(client, await upload(client, ids.map((line) => chatLine(line))))).id;
        await jumpInMidBatch();
        await service.close();
      });
      await withBatches(path, options, async ({ client, service }) => {
        await jumpInMidBatch();
        const batch = await waitFor(client, id, "completed", "expired");
        const lines = await linesOf(client, batch.output_file_id);
        const errors = await linesOf(client, batch.error_file_id);
        assertEquals([...lines, ...errors].map(({ custom_id }) => custom_id).sort(), ids.toSorted());
        answered += lines.length;
        expired += errors.length;
        await service.close();
      });
    });
  }
  return { answered, expired };
}

export const SERVER: Readonly<Record<string, Scenario>> = {
  "server-kills": serverKills,
  sigterms,
  disconnects,
  streams,
  "bad-connections": connections,
  "clock-jumps": clockJumps,
};
