import { assert, assertEquals } from "@std/assert";
import { gpuTest } from "../../testing/gpu.ts";
import { Losses } from "./losses.ts";

gpuTest(
  "wherever its device is lost, every stream ends, and all memory is given back; more with `deno task storms --only gpu-losses`",
  async () => {
    const losses = await Losses.start(7);
    try {
      for (let round = 0; round < 9; round++) await losses.round();
    } finally {
      await losses.end();
    }
    assertEquals(losses.complaints, []);
    assert(losses.injected >= 6, losses.summary());
  },
);
