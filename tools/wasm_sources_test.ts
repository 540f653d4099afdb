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

/** Packages of Cargo.lock that are not in the module: a program of the build, and a decoder that is left out. */
const NOT_INSIDE = ["autocfg", "zlib-rs", "compy-images"];

Deno.test("images.licences.md: names the crates of images.wasm in their versions", async () => {
  const [lock, licences] = await Promise.all([
    Deno.readTextFile(new URL("Cargo.lock", IMAGES.crate)),
    Deno.readTextFile(new URL("images.licences.md", IMAGES.file)),
  ]);
  const locked = [...lock.matchAll(/^name = "(.*)"\nversion = "(.*)"/gm)].filter(([, name]) =>
    !NOT_INSIDE.includes(name)
  );
  const listed = [...licences.matchAll(/^\| ([\w-]+) \| (\d\S+) \|/gm)];
  const names = (found: readonly RegExpExecArray[]) => found.map(([, name, version]) => `${name} ${version}`);
  assertEquals(names(listed), names(locked));
});

Deno.test("WebAssembly module: a custom section is found after it is added", async () => {
  const empty = Uint8Array.of(0, 0x61, 0x73, 0x6d, 1, 0, 0, 0);
  assertEquals(await section(withSection(empty, "a.name", "some text"), "a.name"), ["some text"]);
});
