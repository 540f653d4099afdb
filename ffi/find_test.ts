import { assertEquals, assertMatch, assertThrows } from "@std/assert";
import { join } from "@std/path";
import { VERSION } from "../package.ts";
import { ABI_VERSION, SYMBOLS } from "./bindings.ts";
import { candidates, LibraryNotFound, type Place, type Surroundings, thisPlatform } from "./find.ts";
import { builtLibrary } from "./built.ts";
import { KernelError } from "./library.ts";
import { KERNELS, libraryFile } from "./names.ts";
import { NativeLibrary } from "./native.ts";

const FILE = libraryFile("compy");
const { os, cpu } = thisPlatform();

/** A release beside `/program`, by default with the platform's package installed. */
function around(given: Partial<Surroundings> = {}): Surroundings {
  return {
    named: undefined,
    program: "/program",
    resolve: (name) => `/modules/${name}`,
    fromSource: true,
    isFolder: (path) => !path.endsWith(".so"),
    ...given,
  };
}

function paths(given?: Partial<Surroundings>): string[] {
  return candidates(KERNELS, around(given)).map(({ path }) => path);
}

/** Opens the kernels from files; `wanted` is the ABI version. */
function open(files: readonly string[], wanted = ABI_VERSION): NativeLibrary<typeof SYMBOLS> {
  return new NativeLibrary({
    library: KERNELS,
    places: files.map((path) => ({ path })),
    symbols: SYMBOLS,
    version: { name: "compy_abi_version", wanted },
    error: KernelError,
  });
}

Deno.test("library search: looks beside the program, in the platform's package, then in cargo's folders", () => {
  const packaged = join(`/modules/@compy/${os}-${cpu}`, FILE);
  assertEquals(paths(), [
    join("/program", FILE),
    packaged,
    builtLibrary(KERNELS),
    builtLibrary(KERNELS, "serving"),
  ]);
  assertEquals(paths({ fromSource: false }), [join("/program", FILE), packaged]);
});

Deno.test("library search: a named folder or file is the only place", () => {
  assertEquals(paths({ named: "/mine" }), [join("/mine", FILE)]);
  assertEquals(paths({ named: "/mine/libcompy.so" }), [join("/mine", FILE)]);
  assertEquals(paths({ named: "/mine/libcompy_grammar.so" }), [join("/mine", FILE)]);
});

Deno.test("library search: lists a platform package that is not installed", () => {
  const resolve = () => {
    throw new TypeError("not mapped");
  };
  assertEquals(candidates(KERNELS, around({ resolve, fromSource: false }))[1], {
    path: `@compy/${os}-${cpu}`,
    problem: "missing",
    reason: "this package is not installed",
  });
});

Deno.test("library search: opens the first library of this version and reports its file", () => {
  const built = builtLibrary(KERNELS);
  assertEquals(open(["/nowhere/libcompy.so", built]).path, built);
  assertEquals(open([built, "/nowhere/libcompy.so"]).path, built);
});

Deno.test("library search: the error lists the places, their problems and advice if no library is usable", async () => {
  const folder = await Deno.makeTempDir();
  try {
    const broken = join(folder, FILE);
    await Deno.writeTextFile(broken, "not a library");
    const built = builtLibrary(KERNELS);
    const error = assertThrows(() => open(["/nowhere/libcompy.so", built, broken], 999), LibraryNotFound);
    assertEquals(error.code, "library_not_found");
    assertEquals(error.places.map(({ problem }: Place) => problem), [
      "missing",
      "other version",
      "not permitted",
    ]);
    assertMatch(
      error.message,
      /^Cannot load the kernels\. Looked at:\n {2}\/nowhere\/libcompy\.so: not there\n/,
    );
    assertMatch(error.message, new RegExp(`its ABI version must be 999 \\(got ${ABI_VERSION}\\)`));
    assertMatch(error.message, new RegExp(`\n  Allow it: --allow-ffi=${folder}$`));
    const other = assertThrows(() => open(["/nowhere/libcompy.so"]), LibraryNotFound);
    assertMatch(
      other.message,
      /\n {2}Run `deno task build`, or name the folder that has .* with COMPY_LIBRARY$/,
    );
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("package.ts: states the same version as deno.json and the crates", async () => {
  const read = (name: string) => Deno.readTextFile(new URL(`../${name}`, import.meta.url));
  assertEquals(JSON.parse(await read("deno.json")).version, VERSION);
  for (const crate of ["rust-kernels", "rust-grammar"]) {
    assertMatch(await read(`${crate}/Cargo.toml`), new RegExp(`^version = "${VERSION}"$`, "m"));
  }
});
