import { assertEquals, assertMatch, assertNotEquals } from "@std/assert";
import { fingerprint } from "./fingerprint.ts";

Deno.test("fingerprint: equal files have the same, a change in head, tail or size shows", async () => {
  const folder = await Deno.makeTempDir();
  try {
    const bytes = new Uint8Array(10 * 1024 * 1024);
    const of = async (name: string, change: (bytes: Uint8Array<ArrayBuffer>) => Uint8Array) => {
      await Deno.writeFile(`${folder}/${name}`, change(bytes.slice()));
      return await fingerprint(`${folder}/${name}`);
    };
    const set = (at: number) => (copy: Uint8Array) => (copy[at] = 1, copy);
    const same = await of("a", (copy) => copy);
    assertMatch(same, /^[0-9a-f]{64}$/);
    assertEquals(await of("b", (copy) => copy), same);
    const others = [
      set(0),
      set(8 * 1024 * 1024 - 1),
      set(bytes.length - 1),
      (copy: Uint8Array) => copy.subarray(1),
    ];
    for (const change of others) assertNotEquals(await of("c", change), same);
    assertNotEquals(await of("small", () => new Uint8Array(3)), await of("empty", () => new Uint8Array(0)));
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
