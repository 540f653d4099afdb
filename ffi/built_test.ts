import { assertEquals, assertThrows } from "@std/assert";
import { toFileUrl } from "@std/path";
import { newest } from "./built.ts";

Deno.test("built libraries: the newest source file at any depth decides whether a library is outdated, except in excluded folders", async () => {
  const folder = await Deno.makeTempDir();
  try {
    const path = (name: string) => `${folder}/${name}`;
    await Deno.mkdir(path("src/deep #1"), { recursive: true });
    await Deno.mkdir(path("target"));
    const names = ["Cargo.toml", "src/a.rs", "src/deep #1/b c.rs", "target/lib.so"];
    for (const [i, name] of names.entries()) {
      await Deno.writeTextFile(path(name), "");
      await Deno.utime(path(name), 1000 + i, 1000 + i);
    }
    const at = () => newest(toFileUrl(`${folder}/`), new Set(["target"]));
    assertEquals(at(), 1_002_000);
    await Deno.utime(path("Cargo.toml"), 5000, 5000);
    assertEquals(at(), 5_000_000);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("built libraries: a missing source folder is an error", () => {
  assertThrows(() => newest(new URL("nothing/", import.meta.url)), Deno.errors.NotFound);
});
