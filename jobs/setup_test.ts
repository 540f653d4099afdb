import { assertEquals } from "@std/assert";
import { seeded, SimStorage } from "../tests/batch/sim_storage.ts";
import { UnansweredLine } from "./run/dispatch.ts";
import { linesInFlight, withoutAlias } from "./setup.ts";
import { batchLine, runOn } from "./testing.ts";

Deno.test("linesInFlight: is 1.5 times the model's number of sequences, or starts low when that number is unknown", () => {
  assertEquals([1, 4, 16].map(linesInFlight), [{ parallel: 2 }, { parallel: 6 }, { parallel: 24 }]);
  assertEquals(linesInFlight(), { parallel: 24, most: 96 });
});

Deno.test("withoutAlias: removes the name of a model only when it is an alias", () => {
  assertEquals(withoutAlias(["gpt-4"], { model: "gpt-4", n: 1 }), { n: 1 });
  assertEquals(withoutAlias(["gpt-4"], { model: "demo", n: 1 }), { model: "demo", n: 1 });
  assertEquals(withoutAlias(["gpt-4"], { n: 1 }), { n: 1 });
});

Deno.test("runBatch: a cancelled job ends although the engine never answers", async () => {
  const storage = new SimStorage(seeded(1));
  storage.put("in.jsonl", Array.from({ length: 9 }, (_, n) => batchLine(n)).join("\n"));
  const cancel = new AbortController();
  let asked = 0;
  const execute = () => {
    if (++asked === 4) cancel.abort(new UnansweredLine("batch_cancelled", "It was cancelled"));
    return new Promise<never>(() => {});
  };
  const { state, counts } = await runOn(storage, execute, { cancelSignal: cancel.signal });
  assertEquals([state, counts.completed, counts.failed, asked], ["done", 0, 9, 4]);
  const errors = storage.content("err.jsonl")!.trimEnd().split("\n").map((line) =>
    JSON.parse(line).error.code
  );
  assertEquals(errors, Array(9).fill("batch_cancelled"));
});

Deno.test("runBatch: the caller's functions may change each body and check each answer", async () => {
  const storage = new SimStorage(seeded(1));
  storage.put("in.jsonl", [0, 1].map((n) => batchLine(n)).join("\n"));
  const { counts } = await runOn(
    storage,
    ({ body }) => Promise.resolve({ status: 200, body: { more: body.more, n: body.n } }),
    {
      revise: (body) => ({ ...body, more: true }),
      judge: (answer) => answer.body.n === 1 ? { ...answer, status: 422, final: true } : answer,
    },
  );
  assertEquals([counts.completed, counts.failed], [1, 1]);
  assertEquals(JSON.parse(storage.content("out.jsonl")!).response.body, { more: true, n: 0 });
});
