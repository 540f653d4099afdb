import { assert, assertEquals } from "@std/assert";
import { modelsInFolder } from "../../engine/models/folder.ts";
import { campaign } from "./models_scenario.ts";
import { synthesize } from "../../testing/synth/synth.ts";

Deno.test("several models: concurrent requests get the same answers as alone with memory for two models", async () => {
  const folder = await Deno.makeTempDir({ prefix: "models-" });
  try {
    for (const seed of [1, 2, 3]) {
      const file = synthesize({
        architecture: seed === 3 ? "qwen35" : "qwen3",
        types: ["Q8_0"],
        seed,
        layers: 4,
      });
      await Deno.writeFile(`${folder}/m${seed}.gguf`, file);
    }
    const { wrong, refused, loaded, resident } = await campaign({
      files: modelsInFolder(folder).map(({ path }) => path),
      requests: 60,
      crowd: 6,
      loads: 1,
      seed: 1,
      vocabulary: 256,
      rest: 0,
      note: () => {},
    });
    assertEquals({ wrong, refused }, { wrong: 0, refused: 0 });
    assert(loaded > 9, `${loaded} loads`); // more than for the requests alone and the first tokens
    const grown = resident.after - resident.before;
    assert(grown < 100e6, `${grown} bytes more than after the first loads`);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
