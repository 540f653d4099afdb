import { assert, assertEquals } from "@std/assert";
import { fromFileUrl } from "@std/path";
import { libraryFile } from "../../ffi/find.ts";

const built = (profile: string) =>
  fromFileUrl(new URL(`../../rust-kernels/target/${profile}/${libraryFile("compy")}`, import.meta.url));

const LIBRARIES = [built("release"), built("serving")];

/** Without these libraries the test is skipped: it does not justify a build. */
async function areBuilt(): Promise<boolean> {
  const files = await Promise.all(LIBRARIES.map((path) => Deno.stat(path).catch(() => undefined)));
  return files.every((file) => file?.isFile);
}

/** Returns the instruction sets of a library, best first, queried in a separate process. */
async function instructionSets(library: string): Promise<string[]> {
  const program = `import { KernelLibrary } from ${
    JSON.stringify(import.meta.resolve("../../ffi/library.ts"))
  };
    console.log(new TextDecoder().decode(KernelLibrary.open().call("compy_instruction_sets", 0n)));`;
  const command = new Deno.Command(Deno.execPath(), {
    args: ["run", "-q", "--no-check", "--allow-read", "--allow-env", `--allow-ffi=${library}`, "-"],
    env: { COMPY_LIBRARY: library },
    stdin: "piped",
    stdout: "piped",
  });
  const child = command.spawn();
  const writer = child.stdin.getWriter();
  await writer.write(new TextEncoder().encode(program));
  await writer.close();
  const { success, stdout } = await child.output();
  assert(success);
  return new TextDecoder().decode(stdout).trim().split(",");
}

Deno.test({
  name: "library for serving: offers this CPU's best instruction set and scalar code",
  ignore: !await areBuilt(),
  fn: async () => {
    const [all, serving] = await Promise.all(LIBRARIES.map(instructionSets));
    // AMX extends AVX-512 with VNNI, which remains if the system refuses AMX.
    const best = all.slice(0, all[0] === "avx512-amx" ? 2 : 1);
    assertEquals(serving, best[0] === "scalar" ? ["scalar"] : [...best, "scalar"]);
  },
});
