import { assertEquals, assertMatch, assertNotEquals, assertRejects, assertThrows } from "@std/assert";
import { fromFileUrl } from "@std/path";
import { SERVE_SETTINGS } from "./serve_settings.ts";
import { servedIdentities } from "../../lib/pool.ts";
import { aliasesOfOne, hasSeveral, openPool, templateOfOne, templatesOf } from "./served_models.ts";
import { readSettings, settingsFlags } from "../shared/read_settings.ts";
import { inFlags } from "../shared/words.ts";

const DEMO = fromFileUrl(new URL("../../models/demo.gguf", import.meta.url));
const LOAD = { contextLength: 64, parallel: 1, threads: 1 };

const settingsOf = (...args: string[]) => readSettings(SERVE_SETTINGS, settingsFlags(SERVE_SETTINGS, args));

const poolOf = (
  args: string[],
  load: Parameters<typeof openPool>[1]["load"] = LOAD,
  note: (message: string) => void = () => {},
) => openPool(settingsOf(...args), { load, reloads: false, note, describe: () => {} });

/** Runs the test in a folder that holds the demo model under several names. */
async function inFolder(names: readonly string[], test: (folder: string) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir({ prefix: "served-" });
  try {
    for (const name of names) {
      await Deno.mkdir(`${folder}/${name}`.replace(/\/[^/]*$/, ""), { recursive: true });
      await Deno.copyFile(DEMO, `${folder}/${name}`);
    }
    await test(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

Deno.test("served models: a single model is loaded at the start, unless the options allow unloading it", () => {
  assertEquals(hasSeveral(settingsOf()), false);
  assertEquals(hasSeveral(settingsOf("--model", "a.gguf")), false);
  for (
    const args of [["--model", "a.gguf", "--model", "b.gguf"], ["--models", "dir"], ["--idle-unload", "9"], [
      "--memory-mb",
      "9",
    ]]
  ) assertEquals(hasSeveral(settingsOf(...args)), true, `${args}`);
});

Deno.test("aliases: a bare name is accepted for the only model; ambiguous names are refused", async () => {
  assertEquals(aliasesOfOne(settingsOf("--alias", "gpt-4o", "--alias", "x=demo"), "demo"), ["gpt-4o", "x"]);
  assertThrows(
    () => aliasesOfOne(settingsOf("--alias", "x=other"), "demo"),
    Error,
    "names an unknown model",
  );
  assertThrows(() => aliasesOfOne(settingsOf("--alias", "demo"), "demo"), Error, "that no model has");
  await inFolder(["a.gguf", "b.gguf"], async (folder) => {
    const both = ["--model", `${folder}/a.gguf`, "--model", `${folder}/b.gguf`];
    await assertRejects(() => poolOf([...both, "--alias", "x"]), Error, "must be NAME=MODEL");
    await assertRejects(
      () => poolOf([...both, "--alias", "x=c"]),
      Error,
      "names an unknown model; the models are a, b",
    );
    await assertRejects(
      () => poolOf([...both, "--alias", "x=a", "--alias", "x=b"]),
      Error,
      '--alias "x=b" gives the same name as another --alias',
    );
    const pool = await poolOf([...both, "--alias", "x=b"]);
    assertEquals(pool.list().map(({ id, aliases }) => [id, ...aliases]), [["a"], ["b", "x"]]);
    const later = await poolOf(["--models", folder, "--alias", "x=c"]); // the file may still appear
    assertEquals(later.list().map(({ id, aliases }) => [id, ...aliases]), [["a"], ["b"]]);
  });
});

Deno.test("served models: reports files of a folder whose names cannot be offered", async () => {
  await inFolder(["a.gguf", "My Model.gguf", "sub/b.gguf", "s b/c.gguf"], async (folder) => {
    const notes: string[] = [];
    const pool = await poolOf(["--models", folder], LOAD, (message) => notes.push(message));
    assertEquals(pool.list().map(({ id }) => id), ["a", "sub/b"]);
    assertEquals(notes, [
      'Not offered, because names must have at most 128 letters, digits and ._+-: "My Model.gguf", "s b/c.gguf"',
    ]);
  });
});

Deno.test("served models: refuses duplicate file names, an invalid file and backend auto at the start", async () => {
  await inFolder(["a.gguf", "sub/a.gguf"], async (folder) => {
    const same = ["--model", `${folder}/a.gguf`, "--model", `${folder}/sub/a.gguf`];
    await assertRejects(() => poolOf(same), Error, 'would both be called "a"');
    await Deno.writeTextFile(`${folder}/b.gguf`, "no model");
    await assertRejects(() => poolOf(["--model", `${folder}/a.gguf`, "--model", `${folder}/b.gguf`]), Error);
    await assertRejects(
      () => poolOf(["--models", folder], { ...LOAD, backend: "auto" }),
      Error,
      "--backend auto",
    );
    const pool = await poolOf(["--models", folder, "--model", `${folder}/sub/a.gguf`]);
    assertEquals(pool.list().map(({ id, path }) => [id, path.slice(folder.length)]), [
      ["a", "/sub/a.gguf"],
      ["b", "/b.gguf"],
      ["sub/a", "/sub/a.gguf"],
    ]);
  });
});

Deno.test("served models: names a budget too small for every model, a missing folder and a broken file", async () => {
  await inFolder(["a.gguf", "b.gguf"], async (folder) => {
    const both = ["--model", `${folder}/a.gguf`, "--model", `${folder}/b.gguf`];
    await assertRejects(
      () => poolOf([...both, "--memory-mb", "1"]),
      Error,
      'Model "a": The model needs',
    );
    const message = inFlags(await assertRejects(() => poolOf([...both, "--memory-mb", "1"]), Error));
    assertMatch(message, /and --memory-mb allows 1\.0 MB:/);
    assertMatch(message, /No setting fits: allow more with --memory-mb, or use a smaller model/);
    await assertRejects(
      () => poolOf(["--models", `${folder}/models`]),
      Error,
      `Cannot offer the models in "${folder}/models": `,
    );
    await assertRejects(() => poolOf(["--models", `${folder}/a.gguf`]), Error, "Cannot offer the models in");
    await Deno.writeTextFile(`${folder}/b.gguf`, "no model");
    await assertRejects(() => poolOf(both), Error, 'Model "b": GGUF_');
  });
});

Deno.test("served models: explains that a model's file has disappeared", async () => {
  await inFolder(["a.gguf"], async (folder) => {
    const pool = await poolOf(["--models", folder]);
    await Deno.remove(`${folder}/a.gguf`);
    const { message } = await assertRejects(() => pool.use("a"), Error);
    assertEquals(message, 'Model "a" cannot be loaded: Cannot use "a.gguf": there is no such file or folder');
    await pool.close();
  });
});

Deno.test("served models: a batch's identity contains the content and the settings of every model that its lines name", async () => {
  await inFolder(["a.gguf", "b.gguf"], async (folder) => {
    const pool = await poolOf(["--models", folder, "--alias", "x=a"]);
    const identify = servedIdentities(pool, LOAD);
    const a = await identify(["a"]);
    assertEquals([a.model, a["context length"]], ["a", 64]);
    assertEquals(await identify(["x", "a", "gone"]), a);
    assertEquals(await identify(["gone", ""]), {});
    const both = await identify(["a", "b"]);
    assertEquals(Object.keys(both), ["a", "b"]);
    assertEquals(await servedIdentities(pool, LOAD)(["a", "b"]), both);
    assertNotEquals(await servedIdentities(pool, { ...LOAD, kvType: "q8_0" })(["a", "b"]), both);
    await pool.load("a");
    assertEquals(await identify(["a"]), a);
    await pool.close();
  });
});

Deno.test("chat templates: a given template replaces the model's own, also in a batch's identity", async () => {
  await inFolder(["a.gguf", "b.gguf"], async (folder) => {
    const file = `${folder}/own.jinja`;
    await Deno.writeTextFile(file, "own: {{ messages[0].content }}");
    const args = ["--models", folder, "--chat-template", `a=${file}`, "--chat-template", `later=${file}`];
    const chatTemplates = templatesOf(settingsOf(...args));
    const host = { load: LOAD, reloads: true, note: () => {}, describe: () => {}, chatTemplates };
    const pool = await openPool(settingsOf(...args), host);
    const rendered = async (id: string) => {
      const { engine, release } = await pool.use(id);
      release();
      return engine.chatTemplate.render([{ role: "user", content: "Hi" }]);
    };
    assertEquals(await rendered("a"), "own: Hi");
    assertEquals((await rendered("b")).includes("own"), false);
    await pool.unload("a");
    assertEquals(await rendered("a"), "own: Hi");
    const identify = servedIdentities(pool, LOAD, chatTemplates);
    const without = servedIdentities(pool, LOAD);
    assertNotEquals((await identify(["a"]))["chat template"], (await without(["a"]))["chat template"]);
    assertEquals(await identify(["b"]), await without(["b"]));
    await pool.close();

    const both = ["--model", `${folder}/a.gguf`, "--model", `${folder}/b.gguf`];
    await assertRejects(
      () => openPool(settingsOf(...both), host),
      Error,
      '--chat-template "later=…" names an unknown model; the models are a, b',
    );
  });
});

Deno.test("chat templates: name one model or several, and errors name the file and the line", async () => {
  await inFolder([], async (folder) => {
    const good = `${folder}/a=good.jinja`;
    const bad = `${folder}/bad.jinja`;
    await Deno.writeTextFile(good, "\ufeffhi");
    await Deno.writeTextFile(bad, "a\r\n{% if %}");
    const one = (...given: string[]) => () =>
      templateOfOne(settingsOf(...given.flatMap((text) => ["--chat-template", text])), "demo");
    const several = (...given: string[]) => () =>
      templatesOf(settingsOf(...given.flatMap((text) => ["--chat-template", text])));
    assertEquals([one()(), one(good)(), one(`demo=${good}`)()], [
      undefined,
      { source: "hi", file: good },
      { source: "hi", file: good },
    ]);
    assertEquals(several(`b=${good}`)().get("b"), { source: "hi", file: good });
    assertThrows(one(good, bad), Error, "may be given once");
    assertThrows(one(bad), Error, `Cannot parse the chat template ${JSON.stringify(bad)}: line 2: `);
    assertThrows(several("good.jinja"), Error, "must be MODEL=FILE with several models");
    assertThrows(several(`b=${good}`, `b=${good}`), Error, "names the same model as another");
    assertThrows(one(`${folder}/none`), Error, "there is no such file or folder");
    assertThrows(one(folder), Error, "it is a folder");
    await Deno.writeFile(bad, new Uint8Array([0xff]));
    assertThrows(one(bad), Error, "it must be UTF-8");
    await Deno.truncate(bad, 2 ** 22 + 1);
    assertThrows(one(bad), Error, "it must have at most 4194304 bytes (got 4194305)");
  });
});
