import { assertEquals, assertNotEquals } from "@std/assert";
import config from "../deno.json" with { type: "json" };

interface LockFile {
  /** Versions, and their resolved packages, by `npm:NAME@VERSION`. */
  readonly specifiers: Record<string, string>;
  readonly npm: Record<string, unknown>;
}

async function read(path: string): Promise<LockFile> {
  return JSON.parse(await Deno.readTextFile(new URL(path, import.meta.url)));
}

/** The packages of an import map, as a lock file names them. */
function packages(imports: Record<string, string>): string[] {
  const names = Object.values(imports).map((target) => /^npm:\/?((?:@[^/]+\/)?[^/]+)/.exec(target)![1]);
  return [...new Set(names)].map((name) => `npm:${name}`).sort();
}

// A task downloads every package of deno.lock, whether or not its program imports it.
Deno.test("deno.lock: pins the packages of `imports`, and none of `scopes`", async () => {
  const { specifiers } = await read("../deno.lock");
  assertEquals(Object.keys(specifiers).sort(), packages(config.imports));
});

Deno.test("tests/deno.lock: pins the packages of deno.lock in the same versions, and the packages of `scopes`", async () => {
  const [shipped, all] = [await read("../deno.lock"), await read("deno.lock")];
  assertEquals({ ...all.specifiers, ...shipped.specifiers }, all.specifiers);
  assertEquals({ ...all.npm, ...shipped.npm }, all.npm);
  for (const name of packages(config.scopes["./"])) assertNotEquals(all.specifiers[name], undefined, name);
});
