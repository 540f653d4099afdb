import { assertEquals, assertRejects } from "@std/assert";
import { openImageFolder } from "./image_folder.ts";

Deno.test("image folder: reads files by relative and absolute paths, and no path or link leads out of it", async () => {
  const outer = await Deno.realPath(await Deno.makeTempDir());
  try {
    await Deno.mkdir(`${outer}/in/deep`, { recursive: true });
    await Deno.mkdir(`${outer}/in2`);
    for (const path of ["secret", "in/a b.png", "in/deep/c.png", "in2/d.png"]) {
      await Deno.writeTextFile(`${outer}/${path}`, path);
    }
    await Deno.symlink(`${outer}/secret`, `${outer}/in/link.png`);
    await Deno.symlink(outer, `${outer}/in/up`);
    await Deno.symlink(`${outer}/in/deep/c.png`, `${outer}/in/inner.png`);
    await Deno.symlink(`${outer}/in`, `${outer}/alias`);
    const large = await Deno.create(`${outer}/in/large.png`);
    await large.truncate(11 * 2 ** 20);
    large.close();
    const { path, read } = await openImageFolder(`${outer}/alias`);
    assertEquals(path, `${outer}/in`);
    const good: [string, string][] = [
      ["file:a b.png", "in/a b.png"],
      ["FILE:deep/../a b.png", "in/a b.png"],
      ["file:inner.png", "in/deep/c.png"],
      [`file:${outer}/in/deep/c.png`, "in/deep/c.png"],
      [`file://${outer}/in/a%20b.png`, "in/a b.png"],
      [`file://localhost${outer}/in/a%20b.png`, "in/a b.png"],
    ];
    for (const [url, content] of good) {
      const bytes = await read(url);
      assertEquals(typeof bytes === "string" ? bytes : new TextDecoder().decode(bytes), content, url);
    }
    const outside = "the file is not in the image folder";
    const bad: [string, string][] = [
      ["file:../secret", outside],
      ["file:link.png", outside],
      ["file:up/secret", outside],
      ["file:../in2/d.png", outside],
      [`file://${outer}/secret`, outside],
      ["file:/etc/passwd", outside],
      ["file:", outside],
      ["file:deep", "it is not a file"],
      ["file:none.png", "the image folder does not have this file"],
      [`file://other.example${outer}/in/a%20b.png`, "the file cannot be read"],
      ["file:a\0.png", "the file cannot be read"],
      ["file:large.png", "it must have at most 10485760 bytes (got 11534336)"],
    ];
    for (const [url, reason] of bad) assertEquals(await read(url), reason, url);
    await assertRejects(() => openImageFolder(`${outer}/secret`), Error, "is not a folder");
    await assertRejects(() => openImageFolder(`${outer}/none`));
  } finally {
    await Deno.remove(outer, { recursive: true });
  }
});
