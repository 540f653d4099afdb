import { assertEquals } from "@std/assert";
import { modelsInFolder } from "./folder.ts";

Deno.test("a folder offers the model files in it and one level below, by plain names, and nothing else", async () => {
  const folder = await Deno.makeTempDir({ prefix: "models-" });
  try {
    const file = (path: string) => Deno.writeTextFileSync(`${folder}/${path}`, "x");
    for (const name of ["sub", "sub/deep", "plain.gguf", "..odd"]) Deno.mkdirSync(`${folder}/${name}`);
    for (const name of ["b.gguf", "a.gguf", "notes.txt", ".hidden.gguf", "sp ace.gguf", "é.gguf"]) file(name);
    for (const name of ["sub/c.gguf", "sub/readme.md", "sub/deep/d.gguf", "..odd/e.gguf"]) file(name);
    Deno.symlinkSync(`${folder}/a.gguf`, `${folder}/linked.gguf`);
    Deno.symlinkSync(`${folder}/nowhere`, `${folder}/broken.gguf`);
    assertEquals(modelsInFolder(folder).map(({ id, path }) => [id, path.slice(folder.length + 1)]), [
      ["a", "a.gguf"],
      ["b", "b.gguf"],
      ["linked", "linked.gguf"],
      ["sub/c", "sub/c.gguf"],
    ]);
    assertEquals(modelsInFolder(`${folder}/gone`), []);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
