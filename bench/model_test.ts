import { assertMatch, assertRejects } from "@std/assert";
import { MemoryError } from "../engine/load/memory_error.ts";
import { benchModel } from "./model.ts";

const MODEL = new URL("../models/demo.gguf", import.meta.url).pathname;

Deno.test("bench: before loading, refuses a measurement that does not fit into free memory, and the message states both sizes", async () => {
  const phases: string[] = [];
  const of = (freeBytes: number) =>
    assertRejects(
      () =>
        benchModel({ model: MODEL, sequences: [1000], freeBytes, onPhase: (phase) => phases.push(phase) }),
      MemoryError,
    );
  const { message } = await of(50e6);
  assertMatch(
    message,
    /^The model needs \d+\.\d MB of memory with these settings, and 50\.0 MB are free for it:\n/,
  );
  assertMatch(message, /\n {2}KV cache +\d+\.\d MB {2}\(--pp, --tg, --npl and --context, in 16 bits\)\n/);
  assertMatch(
    message,
    /\n {2}What fits: fewer sequences \(--npl\) or tokens \(--pp, --tg, --context\): \d+\.\d MB are left for them$/,
  );
  assertMatch((await of(1e6)).message, /\n {2}No setting fits: free some memory, /);
  assertMatch(phases.join(), /^loading,loading$/);
});
