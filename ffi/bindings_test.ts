import { assert, assertEquals } from "@std/assert";
import { fromFileUrl } from "@std/path";
import { fullTier } from "../testing/tier.ts";
import { KernelLibrary } from "./library.ts";

const root = fromFileUrl(new URL("..", import.meta.url));

async function output(command: string, args: string[], input = ""): Promise<string> {
  const child = new Deno.Command(command, { args, cwd: root, stdin: "piped", stdout: "piped" }).spawn();
  const writer = child.stdin.getWriter();
  await writer.write(new TextEncoder().encode(input));
  await writer.close();
  const { success, stdout } = await child.output();
  assert(success, `${command} ${args.join(" ")} failed`);
  return new TextDecoder().decode(stdout);
}

for (const [what, file] of [["bindings", "ffi/bindings.ts"], ["formats", "engine/gguf/formats.ts"]]) {
  fullTier.test(`bindings: ${file} matches the kernels (else: deno task bindings)`, async () => {
    const run =
      `run --release --locked --quiet --manifest-path rust-kernels/Cargo.toml --bin bindings ${what}`;
    const generated = await output("cargo", run.split(" "));
    const formatted = await output(Deno.execPath(), ["fmt", "--ext=ts", "-"], generated);
    assertEquals(await Deno.readTextFile(`${root}${file}`), formatted);
  });
}

fullTier.test("bindings: the library has the same ABI version and lists instruction sets", () => {
  const names = new TextDecoder().decode(KernelLibrary.open().call("compy_instruction_sets", 0n)).split(",");
  assert(names.includes("scalar"), names.join());
});
