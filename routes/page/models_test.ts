import { assertEquals } from "@std/assert";
import { bytes, duration, fileName, rate } from "./format.js";
import { modelLabel, modelsOf } from "./models.js";

Deno.test("models: reads a list with or without states, context lengths and modalities", () => {
  const list = modelsOf({
    data: [
      { id: "a", status: { value: "unloaded" } },
      {
        id: "b",
        status: { value: "ready" },
        meta: { n_ctx: 512 },
        architecture: { input_modalities: ["text", "image"] },
      },
      { id: "c", architecture: { input_modalities: ["text"] } },
    ],
  });
  assertEquals(list, [
    { id: "a", state: "unloaded", context: undefined, images: undefined },
    { id: "b", state: "ready", context: 512, images: true },
    { id: "c", state: "ready", context: undefined, images: false },
  ]);
  assertEquals(list.map(modelLabel), ["a (not loaded yet)", "b", "c"]);
  assertEquals(modelsOf(undefined), []);
});

Deno.test("format: figures are short, and file names are safe", () => {
  assertEquals([0.043, 3.21, 42.4, 600, 7300, 200_000].map(duration), [
    "43 ms",
    "3.2 s",
    "42 s",
    "10 min",
    "2 h 2 min",
    "2 days",
  ]);
  assertEquals([0, 999, 1500, 2.5e6, 3e9].map(bytes), ["0 bytes", "999 bytes", "1.5 kB", "2.5 MB", "3.0 GB"]);
  assertEquals([9.96, 123.4].map(rate), ["10.0", "123"]);
  assertEquals(fileName("../../Ä name: with/ everything?", "json"), "Ä-name-with-everything.json");
  assertEquals(fileName("…", "json"), "compy.json");
});
