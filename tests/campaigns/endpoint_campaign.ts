import { parseArgs } from "@std/cli/parse_args.js";
import { withLiveServer } from "../../testing/live_server.ts";
import { disconnect, stopInMidStream, streamAll, truth } from "../server/endpoint_scenario.ts";
import { say } from "../../testing/campaign.ts";

const HELP = `Disconnect from every endpoint, stream from all at once, and stop servers in mid-stream.

Usage: deno task serve:endpoints [options]

  --disconnects N   requests whose client leaves (default 1000)
  --streams N       streams that are open at once (default 500)
  --sigterms N      servers that are stopped with 32 live streams (default 100)
  --seed N          what chance begins with (default 1)
`;

async function main(): Promise<void> {
  const flags = parseArgs(Deno.args, { boolean: ["help"] });
  if (flags.help) return void say(HELP);
  const { disconnects = 1000, streams = 500, sigterms = 100, seed = 1 } = flags;
  // The queue holds 256 requests. With 256 running, 500 streams can be open at once.
  const args = ["--parallel", "256"];
  let expected: string[] = [];
  await withLiveServer(args, async (server) => {
    expected = await truth(server.url);
    await disconnect(server, expected, disconnects, seed);
    say(`${disconnects} disconnects: none of the others lost or wrong, nothing left`);
    await streamAll(server, expected, streams);
    say(`${streams} streams at once: none lost or wrong, nothing left`);
  });
  for (let i = 0; i < sigterms; i++) await stopInMidStream(args, expected, seed + i);
  say(`${sigterms} servers stopped with live streams: all were read to their end, exit code 0`);
}

if (import.meta.main) await main();
