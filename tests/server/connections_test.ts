import { assert } from "@std/assert";
import { storm } from "./connection_storm.ts";
import { withLiveServer } from "../../testing/live_server.ts";
import { fullTier } from "../../testing/tier.ts";

/* The campaign is `deno task storms --only bad-connections`. */

fullTier.test({
  name: "server: well-behaved clients lose nothing in storms of bad ones with 256 file descriptors",
  ignore: Deno.build.os !== "linux",
  async fn() {
    const path = await Deno.makeTempDir({ prefix: "connections-" });
    try {
      await withLiveServer(
        [],
        async (server) => {
          const options = { connections: 520, wave: 260, waveMs: 2000, seed: 1 };
          const { answered, health, descriptors } = await storm(server, options);
          assert(answered > 0 && health.length > 0);
          assert(descriptors.after <= descriptors.before + 2, JSON.stringify(descriptors));
        },
        path,
        256,
      );
    } finally {
      await Deno.remove(path, { recursive: true });
    }
  },
});
