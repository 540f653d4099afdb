import { assertEquals } from "@std/assert";
import { modelsInFolder, modelsLeftOut } from "./folder.ts";

Deno.test("models folder: offers model files in it and one level below, if their names are safe", async () => {
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
    assertEquals(modelsLeftOut(folder), ["sp ace.gguf", "é.gguf"]);
    Deno.mkdirSync(`${folder}/o dd`);
    for (const name of ["sub/a b.gguf", "o dd/e.gguf", "o dd/.f.gguf"]) file(name);
    assertEquals(modelsLeftOut(folder), ["o dd/e.gguf", "sp ace.gguf", "sub/a b.gguf", "é.gguf"]);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("models folder: split models keep their shard number if another model has the name without the number", async () => {
  const folder = await Deno.makeTempDir({ prefix: "models-" });
  try {
    const file = (path: string) => Deno.writeTextFileSync(`${folder}/${path}`, "x");
    Deno.mkdirSync(`${folder}/sub`);
    for (const shard of ["a-00001-of-00002", "a-00002-of-00002", "sub/a-00002-of-00002"]) {
      file(`${shard}.gguf`);
    }
    for (const shard of ["b-00001-of-00002", "b-00002-of-00003", "b-00003-of-00003"]) file(`${shard}.gguf`);
    for (const name of ["a", "a-of-00002", "c-1-of-2"]) file(`${name}.gguf`);
    assertEquals(modelsInFolder(folder).map(({ id, path }) => [id, path.slice(folder.length + 1)]), [
      ["a", "a.gguf"],
      ["a-00001-of-00002", "a-00001-of-00002.gguf"],
      ["a-of-00002", "a-of-00002.gguf"],
      ["b-00001-of-00002", "b-00001-of-00002.gguf"],
      ["b-00002-of-00003", "b-00002-of-00003.gguf"],
      ["c-1-of-2", "c-1-of-2.gguf"],
      ["sub/a", "sub/a-00002-of-00002.gguf"],
    ]);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
