import { assertEquals, assertMatch } from "@std/assert";
import { fromFileUrl } from "@std/path";
import { serveHttp } from "../../routes/serve.ts";
import { withChatModel } from "../../testing/chat_model.ts";
import { fromNpm } from "../packages.ts";
import { fullTier, isFullTier } from "../../testing/tier.ts";

/* pi-ai, through which the agent pi and others ask their models. */

const PACKAGE = "@mariozechner/pi-ai@0.73.1";
const folder = isFullTier ? await fromNpm(PACKAGE) : undefined;
const note = folder ? "" : ` (skipped: npm cannot install ${PACKAGE})`;
const PROGRAM = fromFileUrl(new URL("pi_overflow.js", import.meta.url));

fullTier.test({
  name: `pi-ai: recognises a context overflow on all three APIs${note}`,
  ignore: !folder,
  fn: () =>
    withChatModel("by itself", async ({ engine }) => {
      const server = serveHttp(engine, { signals: false });
      try {
        const args = [PROGRAM, folder!, `http://127.0.0.1:${server.port}`, engine.model.id];
        const { stdout, stderr } = await new Deno.Command("node", { args }).output();
        const text = new TextDecoder();
        assertEquals(text.decode(stderr), "");
        const outcomes = JSON.parse(text.decode(stdout));
        assertEquals(outcomes.length, 3);
        for (const { api, overflow, message } of outcomes) {
          assertEquals(overflow, true, `${api}: ${message}`);
          assertMatch(message, /maximum context length is 512 tokens|prompt is too long: \d+ tokens > 512/);
        }
      } finally {
        await server.shutdown(0);
      }
    }, { contextLength: 512 }),
});
