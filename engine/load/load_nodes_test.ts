import { assertEquals, assertRejects, assertThrows } from "@std/assert";
import { fromFileUrl } from "@std/path";
import { EngineError } from "../api/errors.ts";
import { loadOnNodes, measureOnNodes, readNodes } from "./load_nodes.ts";
import { measureModel } from "./load.ts";
import { MemoryError, totalOf } from "./memory_error.ts";

const MODEL = fromFileUrl(new URL("../../models/demo.gguf", import.meta.url));

Deno.test("numa: reads the processors of each node", () => {
  assertEquals(readNodes("0-2,8/3"), [{ cores: 4, processors: [0, 1, 2, 8] }, { cores: 1, processors: [3] }]);
  for (const wrong of ["", "0-", "3-1", "0/x", "0//1", "1024", "-1", "0-99999999999"]) {
    assertThrows(() => readNodes(wrong), EngineError, "must be auto, off, or the processors of each node");
  }
});

Deno.test("numa: a model on two nodes needs twice the memory and has the places of both engines", async () => {
  const options = { model: MODEL, contextLength: 256, parallel: 2, threads: 1 };
  const one = await measureModel({ ...options, parallel: 1 });
  const loaded = await loadOnNodes({ ...options, numa: "0/0" });
  try {
    assertEquals([loaded.nodes, totalOf(loaded.memory)], [2, 2 * totalOf(one.memory)]);
    assertEquals(loaded.engine.slots().length, 2);
  } finally {
    await loaded.engine.close();
  }
});

Deno.test("numa: one named node binds the threads of one engine", async () => {
  const loaded = await loadOnNodes({ model: MODEL, contextLength: 256, parallel: 1, numa: "0" });
  assertEquals([loaded.nodes, loaded.backend.info.threads], [undefined, 1]);
  await loaded.engine.close();
});

Deno.test("numa: nodes that the user names need memory for each engine, and the native kernels", async () => {
  const { memory } = await measureModel({ model: MODEL, contextLength: 256, parallel: 1 });
  const options = { model: MODEL, contextLength: 256, parallel: 2, numa: "0/0" };
  await assertRejects(() => measureOnNodes({ ...options, freeBytes: totalOf(memory) }), MemoryError);
  await assertRejects(() => measureOnNodes({ ...options, backend: "wasm" }), EngineError, "native kernels");
});
