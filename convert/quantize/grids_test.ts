import { assertEquals } from "@std/assert";
import { GRID_TEXTS, pointsOf } from "./grids.ts";

Deno.test("grids: GRID_TEXTS equals the grid texts of the Rust kernels", async () => {
  const rust = await Deno.readTextFile(new URL("../../rust-kernels/src/formats/grids.rs", import.meta.url));
  const found = [...rust.matchAll(/static (\w+): \[u16; (\d+)\] = points\(\s*"([^"]*)"/g)]
    .map(([, name, points, text]) => [name, Number(points), text.replace(/\\\n */g, "")]);
  const texts = Object.entries(GRID_TEXTS).map((
    [name, text],
  ) => [name, pointsOf(name as "IQ1").length, text]);
  assertEquals(texts, found);
});
