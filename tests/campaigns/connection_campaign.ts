/**
 * The long campaign of the listener (`deno task serve:torture`); the test suite runs a short one. Stops at the first
 * fault, and prints the seed that reproduces it. Linux only: it counts the server's file descriptors.
 */
import { parseArgs } from "@std/cli/parse_args.js";
import { storm } from "../server/connection_storm.ts";
import { withLiveServer } from "../../testing/live_server.ts";
import { say } from "../../testing/campaign.ts";

const HELP = `Send storms of bad clients at a server, and look whether a well-behaved one loses an answer.

Usage: deno task serve:torture [--connections N] [--wave N] [--seconds N] [--descriptors N] [--seed N]

  --connections N   bad connections in all (default 10000)
  --wave N          how many of them are open at once (default 500)
  --seconds N       how long each wave lasts (default 3)
  --descriptors N   the server's limit of file descriptors (default: the system's)
  --seed N          what chance begins with (default 1)
`;

async function main(): Promise<void> {
  const flags = parseArgs(Deno.args, { boolean: ["help"] });
  if (flags.help) return say(HELP);
  const { connections = 10_000, wave = 500, seconds = 3, seed = 1, descriptors } = flags;
  const path = await Deno.makeTempDir({ prefix: "connections-" });
  try {
    await withLiveServer(
      [],
      async (server) => {
        const started = performance.now();
        const report = await storm(server, { connections, wave, waveMs: seconds * 1000, seed });
        const { answered, deferred, health, batchLines, descriptors: { before, after } } = report;
        const at = (share: number) => `${health[Math.floor((health.length - 1) * share)].toFixed(1)} ms`;
        if (after > before + 2) throw new Error(`${after} descriptors are open, ${before} were before`);
        say(
          `${connections} bad connections in ${
            ((performance.now() - started) / 1000).toFixed(0)
          } s, ${wave} at once, ` +
            `limit of descriptors ${descriptors ?? "the system's"}, seed ${seed}: well-behaved clients had ` +
            `${answered} chats (told to come back ${deferred} times), ${health.length} of /health (half within ` +
            `${at(0.5)}, 99 % within ${
              at(0.99)
            }) and ${batchLines} lines of a batch answered, 0 lost, 0 doubled, 0 wrong; ` +
            `descriptors ${before} before, ${after} after`,
        );
      },
      path,
      descriptors,
    );
  } finally {
    await Deno.remove(path, { recursive: true });
  }
}

await main();
