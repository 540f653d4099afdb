/**
 * Checks whether the library could be published on JSR (`deno task publish:check`): its exports, slow types and
 * imports. JSR needs a scoped name, so a copy gets one. Nothing leaves this machine.
 */
import { fromFileUrl, relative } from "@std/path";
import { JSR_NAME } from "../package.ts";

const ROOT = fromFileUrl(new URL("..", import.meta.url));
/** Files of the library other than modules. */
const BESIDE = ["models", "README.md", "LICENSE"];
const LEFT_OUT = ["**/*_test.ts", "**/testing*.ts", "**/bad_files.ts", "**/snapshots"];

async function run(program: string, args: readonly string[], cwd: string): Promise<void> {
  const { code } = await new Deno.Command(program, { args: [...args], cwd }).spawn().status;
  if (code !== 0) Deno.exit(code);
}

/** Returns the files and folders in the root that contain the library's modules. */
async function rooms(): Promise<string[]> {
  const info = new Deno.Command(Deno.execPath(), { args: ["info", "--json", "mod.ts"], cwd: ROOT });
  const { modules } = JSON.parse(new TextDecoder().decode((await info.output()).stdout));
  const files = (modules as { local?: string }[]).map(({ local = "" }) => local);
  return [
    ...new Set(
      files.filter((file) => file.startsWith(ROOT)).map((file) => relative(ROOT, file).split("/")[0]),
    ),
  ];
}

const parts = [...await rooms(), ...BESIDE];
const folder = await Deno.makeTempDir({ prefix: "compy-publish-" });
try {
  await run("cp", ["-r", ...parts, "deno.lock", folder], ROOT);
  const config = JSON.parse(await Deno.readTextFile(`${ROOT}deno.json`));
  const { version, exports, imports, compilerOptions } = config;
  const publish = { include: [...parts, "deno.json"], exclude: LEFT_OUT };
  const published = { name: JSR_NAME, version, exports, imports, compilerOptions, publish, license: "MIT" };
  await Deno.writeTextFile(`${folder}/deno.json`, JSON.stringify(published));
  await run(Deno.execPath(), ["publish", "--dry-run", "--allow-dirty"], folder);
} finally {
  await Deno.remove(folder, { recursive: true });
}
