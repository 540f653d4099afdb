import { assertEquals } from "@std/assert";
import { hashSources, IMAGES, KERNELS, SOURCES_SECTION, withSection } from "./wasm_sources.ts";

async function section(module: Uint8Array<ArrayBuffer>, name: string): Promise<string[]> {
  const sections = WebAssembly.Module.customSections(await WebAssembly.compile(module), name);
  return sections.map((bytes) => new TextDecoder().decode(bytes));
}

for (const module of [KERNELS, IMAGES]) {
  Deno.test(`${module.built}: matches its crate's current sources (else run deno task build:wasm)`, async () => {
    assertEquals(await section(await Deno.readFile(module.file), SOURCES_SECTION), [
      await hashSources(module),
    ]);
  });
}

Deno.test("WebAssembly module: a custom section is found after it is added", async () => {
  const empty = Uint8Array.of(0, 0x61, 0x73, 0x6d, 1, 0, 0, 0);
  assertEquals(await section(withSection(empty, "a.name", "some text"), "a.name"), ["some text"]);
});
