import { assert, assertEquals, assertNotMatch } from "@std/assert";
import { fromFileUrl, join } from "@std/path";
import { fullTier } from "../../testing/tier.ts";

/* Commands on a machine without cached npm packages. Needs the npm registry. */

const ROOT = fromFileUrl(new URL("../..", import.meta.url));
const LIMIT_BYTES = 40e6;
/** Maximum milliseconds of a command, including downloads. */
const LIMIT_MS = 180_000;

/** Copies the tracked files, and the built libraries so that no task builds them. */
const COPY =
  `{ git ls-files -z; find rust-*/target/release -maxdepth 1 '(' -name '*.so' -o -name '*.dylib' ')' -print0; } |
  tar -c --null -T - | tar -x -C "$0"`;

/** Deno arguments of the other commands, which download nothing after `serve` has started. */
const COMMANDS = [
  "task generate --prompt Hello -n 2",
  "task chat --help",
  "task embed --help",
  "task batch check --help",
  "task tokenize --text Hello",
  "task inspect",
  "task convert --help",
  "task pull --help",
  "task completions bash",
  "task doctor --help",
  "run -q -P=library examples/chat.ts",
];

/** Bytes of the files under a folder. */
async function size(folder: string): Promise<number> {
  let bytes = 0;
  for await (const { name, isDirectory } of Deno.readDir(folder)) {
    const path = join(folder, name);
    bytes += isDirectory ? await size(path) : (await Deno.stat(path)).size;
  }
  return bytes;
}

function deno(args: readonly string[], cwd: string, cache: string): Deno.ChildProcess {
  return new Deno.Command(Deno.execPath(), {
    args: [...args],
    cwd,
    env: { DENO_DIR: cache, INIT_CWD: cwd, NO_COLOR: "1" },
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
    signal: AbortSignal.timeout(LIMIT_MS),
  }).spawn();
}

/** Starts `serve` and stops it as soon as it listens. Returns its standard error. */
async function serveOnce(cwd: string, cache: string): Promise<string> {
  await using child = deno(["task", "serve", "--port", "0", "--data", "none"], cwd, cache);
  const stderr = new Response(child.stderr).text();
  let stdout = "";
  for await (const text of child.stdout.pipeThrough(new TextDecoderStream())) {
    stdout += text;
    if (stdout.includes("listening on")) child.kill("SIGINT");
  }
  assert(stdout.includes("listening on"), `serve did not start: ${await stderr}`);
  return await stderr;
}

fullTier.test("fresh cache: serve downloads at most 40 MB without a warning; other commands download nothing", async (t) => {
  const folder = await Deno.makeTempDir({ prefix: "compy-fresh-" });
  const [checkout, cache] = [join(folder, "checkout"), join(folder, "cache")];
  try {
    await Deno.mkdir(checkout);
    const copied = await new Deno.Command("sh", { args: ["-c", COPY, checkout], cwd: ROOT }).output();
    assert(copied.success, new TextDecoder().decode(copied.stderr));

    await t.step("deno task serve", async () => {
      assertNotMatch(await serveOnce(checkout, cache), /warning|╭/i);
      const bytes = await size(cache);
      assert(bytes < LIMIT_BYTES, `DENO_DIR has ${bytes} bytes; at most ${LIMIT_BYTES} are allowed`);
    });
    const packages = await size(join(cache, "npm"));
    for (const command of COMMANDS) {
      await t.step(`deno ${command}`, async () => {
        const { code, stderr } = await deno(command.split(" "), checkout, cache).output();
        const text = new TextDecoder().decode(stderr);
        assertEquals(code, 0, text);
        assertEquals(await size(join(cache, "npm")), packages);
      });
    }
    const lock = "deno.lock";
    assertEquals(await Deno.readTextFile(join(checkout, lock)), await Deno.readTextFile(join(ROOT, lock)));
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
