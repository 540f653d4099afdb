import { assert, assertEquals } from "@std/assert";
import { toChat } from "./items.ts";

Deno.test("toChat: merges a turn of ten thousand calls into one message in under a second", () => {
  const calls = Array.from(
    { length: 10_000 },
    (_, i) => ({ type: "function_call" as const, call_id: `c${i}`, name: "f", arguments: "{}" }),
  );
  const start = performance.now();
  const messages = toChat([{ role: "user", content: "Hi" }, ...calls], null);
  assert(performance.now() - start < 100);
  assertEquals(messages.map(({ role }) => role), ["user", "assistant"]);
  assertEquals(messages[1].tool_calls?.length, 10_000);
});
