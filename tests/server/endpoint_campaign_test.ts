import { disconnect, stopInMidStream, streamAll, truth } from "./endpoint_scenario.ts";
import { withLiveServer } from "../../testing/live_server.ts";

Deno.test("all endpoints: disconnects, many streams and SIGTERM do not disturb other requests", async () => {
  const args = ["--parallel", "8"];
  let expected: string[] = [];
  await withLiveServer(args, async (server) => {
    expected = await truth(server.url);
    await disconnect(server, expected, 32, 1);
    await streamAll(server, expected, 24);
  });
  await stopInMidStream(args, expected, 1);
});
