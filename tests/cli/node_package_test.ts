/** The packed npm package in its supported Node versions, natively, on a PATH without cargo and Deno. */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { dirname, fromFileUrl, join } from "@std/path";
import { builtLibrary } from "../../ffi/built.ts";
import { thisPlatform } from "../../ffi/find.ts";
import { thisRuntime } from "../../ffi/runtime.ts";
import { loadModel } from "../../mod.ts";
import { LIBRARIES } from "../../tools/release/libraries.ts";
import { packNpm } from "../../tools/release/npm.ts";
import { run } from "../../tools/release/run.ts";
import { fullTier } from "../../testing/tier.ts";

const root = fromFileUrl(new URL("../..", import.meta.url));
const NODES = ["22.23.3", "24.21.0"];
const OLD_NODE = "20.20.2";
const TEXT = "My name is compy. I am a very small language model.";

const work = await Deno.makeTempDir({ prefix: "compy-node-" });
globalThis.addEventListener("unload", () => Deno.removeSync(work, { recursive: true }));
const project = await install();

/** A project with the package, and each Node in a separate folder. Returns the project's folder. */
async function install(): Promise<string> {
  const libraries = join(work, "libraries");
  await Deno.mkdir(libraries);
  for (const library of LIBRARIES) {
    const path = builtLibrary(library);
    await Deno.copyFile(path, join(libraries, path.slice(dirname(path).length + 1)));
  }
  const { main, platform } = await packNpm(root, libraries, work);
  const { os, cpu } = thisPlatform();
  const nodes = [...NODES, OLD_NODE].map((version) => [folderOf(version), `node-${os}-${cpu}@${version}`]);
  const project = join(work, "project with ünusual name");
  for (const [folder, ...packages] of [[project, main, platform], ...nodes]) {
    await Deno.mkdir(folder);
    await Deno.writeTextFile(join(folder, "package.json"), '{"private":true,"type":"module"}');
    await run("npm", ["install", "--silent", "--no-audit", "--no-fund", "--prefer-offline", ...packages], {
      cwd: folder,
    });
  }
  await Deno.copyFile(join(root, "tests/cli/node/program.js"), join(project, "program.js"));
  return project;
}

function folderOf(version: string): string {
  return join(work, `node-${version}`);
}

interface Setting {
  readonly cwd?: string;
  readonly env?: Record<string, string>;
}

function start(
  version: string,
  args: string[],
  { cwd = project, env = {} }: Setting = {},
): Deno.ChildProcess {
  const { os, cpu } = thisPlatform();
  const node = join(folderOf(version), `node_modules/node-${os}-${cpu}/bin/node`);
  return new Deno.Command(node, {
    args,
    cwd,
    env: { PATH: "/nothing", HOME: work, ...env },
    clearEnv: true,
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
}

/** Returns the output of an action of the test program, which must end by itself. */
async function act(version: string, action: string, setting?: Setting) {
  const child = start(version, ["program.js", action], setting);
  await child.stdin.close();
  const late = setTimeout(() => child.kill("SIGKILL"), 120_000);
  const [status, said, complaints] = await Promise.all([
    child.status,
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  clearTimeout(late);
  assertEquals([status.code, complaints], [0, ""], said);
  return JSON.parse(said);
}

for (const version of NODES) {
  const test = (behaviour: string, fn: () => Promise<void>) =>
    fullTier.test({ name: `Node ${version}: ${behaviour}`, fn });

  test("chat, embeddings, JSON schemas and tool calls give Deno's answers, with native kernels", async () => {
    const { warnings, backend, text, vectors, json, toolCalls } = await act(version, "answers");
    await using model = await loadModel();
    const own = await model.embed(["a fox in the snow", "a hare in the grass"]);
    assertEquals([warnings, backend, text], [[], "cpu", TEXT]);
    assertEquals(vectors.map((vector: number[]) => Object.values(vector)), own.vectors.map((v) => [...v]));
    assertEquals(Object.keys(json), ["name", "age"]);
    assertEquals(toolCalls.map(({ name }: { name: string }) => name), ["add"]);
    assert(Number.isInteger(toolCalls[0].arguments.a), JSON.stringify(toolCalls));
  });

  test("runs a batch once, resumes it and answers a table", async () => {
    const { runs, again, status, answers, table } = await act(version, "batch");
    assertEquals(runs.filter((result: unknown) => result === "journal_busy").length, 1, JSON.stringify(runs));
    assertEquals([again, status.state, status.completed], ["already_done", "done", 2]);
    assertMatch(answers, /"custom_id":"q0".*compy[^]*"custom_id":"q1"/);
    assertMatch(table, /^town,answer,error\nOslo,.+\nBergen,.+\n$/);
    for (const name of ["out.jsonl", "out.jsonl.journal", "answers.csv", "answers.csv.journal"]) {
      await Deno.remove(join(project, name)).catch(() => {});
    }
  });

  test("file locks: Deno cannot take a lock that Node holds, nor Node one that Deno holds", async () => {
    const [journal, end] = ["held.jsonl.journal", "end"].map((name) => join(project, name));
    const { lockFile } = thisRuntime()!;
    const child = start(version, ["program.js", "hold"]);
    await child.stdin.close();
    const complaints = new Response(child.stderr).text();
    const said = child.stdout.pipeThrough(new TextDecoderStream()).getReader();
    assertEquals((await said.read()).value, "held\n");
    assertEquals(lockFile(journal, "r+"), undefined);
    await Deno.writeTextFile(end, "");
    assertEquals((await said.read()).value, '"done"');
    assertEquals([(await child.status).code, await complaints], [0, ""]);
    const unlock = lockFile(journal, "r+")!;
    const { stderr } = await start(version, ["program.js", "hold"]).output();
    assertMatch(new TextDecoder().decode(stderr), /journal_busy/);
    unlock();
    for (const name of ["held.jsonl", "held.jsonl.journal", "end"]) await Deno.remove(join(project, name));
  });

  test("abort: one signal ends answers of two models, and other requests to both models continue", async () => {
    assertEquals(await act(version, "abort"), { aborted: [true, true], lengths: [60, 60] });
  });

  for (const threads of ["1", "4"]) {
    test(`answers 80 constrained requests to five models with ${threads} threads for calls`, async () => {
      const { jsons, alone } = await act(version, "crowd", { env: { UV_THREADPOOL_SIZE: threads } });
      for (const answers of jsons) assertEquals(answers, jsons[0]);
      assertEquals(jsons[0][7], alone);
      assert(jsons[0].every(({ age }: { age: number }) => Number.isInteger(age)), JSON.stringify(jsons[0]));
    });
  }

  test("serves requests through fetch, and says what to use instead of listen()", async () => {
    const { text, page, listening, stored } = await act(version, "server");
    assertEquals([text, page, stored], [TEXT, 200, "not_supported"]);
    assertEquals(listening.code, "not_supported");
    assertMatch(listening.message, /@hono\/node-server/);
  });

  test("computes in WebAssembly without koffi, and says what batches lack", async () => {
    const modules = join(project, "node_modules");
    await Deno.rename(join(modules, "koffi"), join(modules, "koffi-away"));
    try {
      const { warnings: [warning], backend, text } = await act(version, "answers");
      assertEquals([backend, text], ["wasm", TEXT]);
      assertMatch(
        warning,
        /^Computing in WebAssembly, without native kernels \(.*koffi.* is not installed\)/,
      );
      assertMatch(
        await act(version, "batchWithoutLock"),
        /needs the package koffi to load libraries and to lock files/,
      );
    } finally {
      await Deno.rename(join(modules, "koffi-away"), join(modules, "koffi"));
    }
  });
}

fullTier.test(`Node ${OLD_NODE}: the import fails with a message that names the required version`, async () => {
  const { code, stderr } = await start(OLD_NODE, ["program.js", "answers"]).output();
  assertEquals(code, 1);
  assertMatch(
    new TextDecoder().decode(stderr),
    /^Error: The library compy needs Node 22 or newer \(this is 20\.20\.2\); the command `compy` also works with this one$/m,
  );
});
