/**
 * Checks shaders without a GPU: Dawn (Chrome's WebGPU) validates them, and naga translates them to Metal's language.
 */
import { fromFileUrl, join } from "@std/path";

const ROOT = fromFileUrl(new URL("../../../../", import.meta.url));

/** Returns each shader's translation to Metal's language. Throws an error that describes every invalid shader. */
export async function translate(shaders: ReadonlyMap<string, string>): Promise<Map<string, string>> {
  const folder = await Deno.makeTempDir();
  try {
    const files = [...shaders.keys()].map((name, i) => ({ name, file: join(folder, `${i}.wgsl`) }));
    for (const { name, file } of files) {
      await Deno.writeTextFile(file, `// ${name}\n${shaders.get(name)}`);
    }
    const dawn = ["run", "-q", "--lock=tests/deno.lock", "-P=shaders", "tools/dawn.ts"];
    await run("deno", [...dawn, ...files.map(({ file }) => file)]);
    const manifest = ["--manifest-path", "tools/wgsl-to-msl/Cargo.toml"];
    const target = ["--target-dir", "rust-kernels/target/wgsl-to-msl"];
    await run("cargo", ["run", "--quiet", "--locked", ...manifest, ...target, "--", folder]);
    const texts = files.map(({ name, file }): [string, string] => {
      return [name, Deno.readTextFileSync(file.replace(/wgsl$/, "metal"))];
    });
    return new Map(texts);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

async function run(command: string, args: string[]): Promise<void> {
  const path = command === "deno" ? Deno.execPath() : command;
  const { success, stdout, stderr } = await new Deno.Command(path, { args, cwd: ROOT }).output();
  const decoder = new TextDecoder();
  if (!success) {
    throw new Error(`${command} ${args.join(" ")}: ${decoder.decode(stdout)}${decoder.decode(stderr)}`);
  }
}
