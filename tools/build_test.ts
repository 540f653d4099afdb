import { assert, assertEquals } from "@std/assert";
import { toFileUrl } from "@std/path";
import { newest } from "./build.ts";

Deno.test("build: the newest file of files and folders counts, however deep", async () => {
  const folder = await Deno.makeTempDir();
  try {
    const path = (name: string) => `${folder}/${name}`;
    await Deno.mkdir(path("src/deep #1"), { recursive: true });
    for (const [i, name] of ["Cargo.toml", "src/a.rs", "src/deep #1/b c.rs"].entries()) {
      await Deno.writeTextFile(path(name), "");
      await Deno.utime(path(name), 1000 + i, 1000 + i);
    }
    const at = (...names: string[]) => newest(names.map((name) => new URL(name, toFileUrl(`${folder}/`))));
    assertEquals(await at("Cargo.toml"), 1_000_000);
    assertEquals(await at("Cargo.toml", "src/"), 1_002_000);
    await Deno.utime(path("Cargo.toml"), 5000, 5000);
    assertEquals(await at("Cargo.toml", "src/"), 5_000_000);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("build: a source that is missing is an error", async () => {
  const error = await newest([new URL("nothing.rs", import.meta.url)]).catch((e) => e);
  assert(error instanceof Deno.errors.NotFound);
});
