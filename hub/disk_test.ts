import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { join } from "@std/path";
import { checkSpace, freeBytes, writeWhole } from "./disk.ts";
import { PullError } from "./errors.ts";
import { pull } from "./pull.ts";
import { TestHub } from "./testing_hub.ts";
import { sha256, testModel } from "./testing_models.ts";

Deno.test("disk: refuses a download that does not fit, names needed and free bytes, and keeps a reserve free", async () => {
  const free = () => Promise.resolve(5e9);
  await checkSpace("/models", 4e9, free);
  await checkSpace("/models", 0, () => Promise.resolve(0));
  await checkSpace("/models", 9e9, () => Promise.resolve(undefined));
  for (const needed of [5e9 - 1e6, 6e9]) {
    const { code, message } = await assertRejects(() => checkSpace("/models", needed, free), PullError);
    assertEquals(code, "PULL_DISK");
    assertStringIncludes(message, `"/models"`);
    assertStringIncludes(message, "5.0 GB are free");
  }
  assert(await freeBytes(await Deno.makeTempDir()) !== 0);
});

Deno.test("disk: writes a small file atomically", async () => {
  const folder = await Deno.makeTempDir();
  const path = join(folder, "a.json");
  await writeWhole(path, "one");
  await writeWhole(path, "two");
  assertEquals(await Deno.readTextFile(path), "two");
  assertEquals([...Deno.readDirSync(folder)].map(({ name }) => name), ["a.json"]);
  await Deno.remove(folder, { recursive: true });
});

/** Runs a test on a disk of this size. Skips it where the user may not mount one. */
async function withSmallDisk(bytes: number, test: (folder: string) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir();
  const system = async (...[name, ...args]: string[]) =>
    (await new Deno.Command(name, { args, stdout: "null", stderr: "null" }).output().catch(() => undefined))
      ?.success;
  try {
    if (!await system("mount", "-t", "tmpfs", "-o", `size=${bytes}`, "tmpfs", folder)) return;
    try {
      await test(folder);
    } finally {
      await system("umount", folder);
    }
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

Deno.test("disk: a pull that fills the disk says so, keeps its bytes and resumes when there is room", async () => {
  const model = testModel(9, 6_000_000);
  await using hub = new TestHub({ repositories: { "me/Tiny-GGUF": { "Tiny-Q8_0.gguf": model } } });
  await withSmallDisk(8_000_000, async (models) => {
    const others = join(models, "others.bin");
    await Deno.writeFile(others, new Uint8Array(4_000_000));
    const freeSpace = () => Promise.resolve(1e12); // simulates another program that fills the disk
    const options = { source: "hf:me/Tiny-GGUF", models, endpoint: hub.endpoint, freeMemory: 1e9, freeSpace };
    const { code, message } = await assertRejects(() => pull(options), PullError);
    assertEquals(code, "PULL_DISK", message);
    assertStringIncludes(message, "the same command resumes");
    await Deno.remove(others);
    const { fetched } = await pull(options);
    assert(fetched < model.length - 1_000_000, `${fetched} bytes of ${model.length} were fetched again`);
    assertEquals(sha256(await Deno.readFile(join(models, "Tiny-Q8_0.gguf"))), sha256(model));
  });
});
