import { fromFileUrl } from "@std/path";

/** npm packages with a prebuilt llama.cpp. */
export const PEER = ["node-llama-cpp@3.22.1", "@node-llama-cpp/linux-x64@3.22.1"];

/** Path of the exact forward pass, a python3 program. */
export const EXACT = fromFileUrl(new URL("exact", import.meta.url));

/** Returns a folder with llama.cpp's package: $COMPY_PEER, or else `folder`, into which it is installed. */
export async function peerFolder(folder: string): Promise<string> {
  const installed = Deno.env.get("COMPY_PEER");
  if (installed) return installed;
  const options = ["--omit=optional", "--no-audit", "--no-fund", "--prefix", folder];
  await run("npm", ["install", ...options, ...PEER], folder);
  return folder;
}

/** Runs a program with `input` on standard input, and returns its standard output. Throws if it fails. */
export async function run(program: string, args: string[], cwd: string, input = ""): Promise<string> {
  // Each program has one thread, so that sums are always added in the same order.
  const env = { OMP_NUM_THREADS: "1", OPENBLAS_NUM_THREADS: "1" };
  const child = new Deno.Command(program, { args, cwd, env, stdin: "piped", stdout: "piped" }).spawn();
  const fed = new Blob([input]).stream().pipeTo(child.stdin);
  const [{ success, code, stdout }] = await Promise.all([child.output(), fed]);
  if (!success) throw new Error(`${program} ended with code ${code}`);
  return new TextDecoder().decode(stdout);
}
