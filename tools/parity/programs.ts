import { fromFileUrl } from "@std/path";

/** The package that carries llama.cpp, prebuilt. */
export const PEER = ["node-llama-cpp@3.22.1", "@node-llama-cpp/linux-x64@3.22.1"];

/** The exact pass, for python3. */
export const EXACT = fromFileUrl(new URL("exact", import.meta.url));

/** A folder where llama.cpp's package is installed: $COMPY_PEER, or else `folder`, where it is put first. */
export async function peerFolder(folder: string): Promise<string> {
  const installed = Deno.env.get("COMPY_PEER");
  if (installed) return installed;
  const options = ["--omit=optional", "--no-audit", "--no-fund", "--prefix", folder];
  await run("npm", ["install", ...options, ...PEER], folder);
  return folder;
}

/** The standard output of a program that is given `input`. Throws where it fails. */
export async function run(program: string, args: string[], cwd: string, input = ""): Promise<string> {
  // One thread a program: sums are then added up in one order.
  const env = { OMP_NUM_THREADS: "1", OPENBLAS_NUM_THREADS: "1" };
  const child = new Deno.Command(program, { args, cwd, env, stdin: "piped", stdout: "piped" }).spawn();
  const fed = new Blob([input]).stream().pipeTo(child.stdin);
  const [{ success, code, stdout }] = await Promise.all([child.output(), fed]);
  if (!success) throw new Error(`${program} ended with code ${code}`);
  return new TextDecoder().decode(stdout);
}
