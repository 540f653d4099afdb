import { assert, assertEquals } from "@std/assert";
import { gpuTest } from "../../testing/gpu.ts";
import { Losses } from "./losses.ts";

gpuTest(
  "GPU losses: wherever the device is lost, every stream ends and all memory is freed; the campaign `gpu-losses` has more cases",
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
