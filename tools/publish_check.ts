/**
 * Whether the library could be published on JSR (`deno task publish:check`): its exports, slow types and imports. A name there has a
 * scope, so a copy gets one; nothing leaves this machine.
 */
import { fromFileUrl } from "@std/path";
import { JSR_NAME } from "../package.ts";

const ROOT = fromFileUrl(new URL("..", import.meta.url));
/** What the library is made of. */
const PARTS = [
  "mod.ts",
  "package.ts",
  "lib",
  "engine",
  "ffi",
  "jobs",
  "routes",
  "models",
  "README.md",
  "LICENSE",
];
const LEFT_OUT = ["**/*_test.ts", "**/testing*.ts", "**/bad_files.ts", "**/snapshots"];

async function run(program: string, args: readonly string[], cwd: string): Promise<void> {
  const { code } = await new Deno.Command(program, { args: [...args], cwd }).spawn().status;
  if (code !== 0) Deno.exit(code);
}

const folder = await Deno.makeTempDir({ prefix: "compy-publish-" });
try {
  await run("cp", ["-r", ...PARTS, "deno.lock", folder], ROOT);
  const config = JSON.parse(await Deno.readTextFile(`${ROOT}deno.json`));
  const { version, exports, imports, compilerOptions } = config;
  const publish = { include: [...PARTS, "deno.json"], exclude: LEFT_OUT };
  const published = { name: JSR_NAME, version, exports, imports, compilerOptions, publish, license: "MIT" };
  await Deno.writeTextFile(`${folder}/deno.json`, JSON.stringify(published));
  await run(Deno.execPath(), ["publish", "--dry-run", "--allow-dirty"], folder);
} finally {
  await Deno.remove(folder, { recursive: true });
}
