import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { join } from "@std/path";
import { TestHub } from "../../hub/testing_hub.ts";
import { sha256, testModel } from "../../hub/testing_models.ts";
import { root, withFolder } from "../../testing/commands.ts";
import { fullTier } from "../../testing/tier.ts";

/* The real command, with the permissions of its task and a separate models folder. */

const REPO = "me/Tiny-GGUF";
const MODEL = testModel(5, 6_000_000);

function start(folder: string, command: string[], env: Record<string, string> = {}): Deno.ChildProcess {
  const [name] = command;
  const set = name === "pull" ? ["-P=pull", `--allow-write=${folder}`] : ["-P=compute"];
  return new Deno.Command(Deno.execPath(), {
    args: ["run", "-q", "--no-check", ...set, "main.ts", ...command],
    cwd: root,
    env: { NO_COLOR: "1", COMPY_MODELS: folder, ...env },
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
}

async function run(folder: string, command: string[], env: Record<string, string> = {}) {
  const { code, stdout, stderr } = await start(folder, command, env).output();
  const decoder = new TextDecoder();
  return { code, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr) };
}

async function until(what: string, test: () => boolean | Promise<boolean>): Promise<void> {
  for (let tries = 0; !await test(); tries++) {
    assert(tries < 3000, `${what} does not come about`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

Deno.test("cli: pull downloads a model by its quantization, and the model can be used by name, listed and removed", async () => {
  const demo = await Deno.readFile(join(root, "models/demo.gguf"));
  await using hub = new TestHub({
    repositories: { [REPO]: { "Tiny-Q8_0.gguf": demo, "Tiny-F16.gguf": MODEL } },
  });
  const env = { HF_ENDPOINT: hub.endpoint };
  await withFolder(async (folder) => {
    const open = await run(folder, ["pull", `hf:${REPO}`], env);
    assertEquals([open.code, open.stdout], [2, ""]);
    assertStringIncludes(open.stderr, `has 2 models: name one of "Q8_0", "F16"`);
    const shown = await run(folder, ["pull", `hf:${REPO}`, "--dry-run", "--json"], env);
    assertEquals(JSON.parse(shown.stdout).choices.map(({ choice }: { choice: string }) => choice), [
      "Q8_0",
      "F16",
    ]);
    const pulled = await run(folder, ["pull", `hf:${REPO}:q8_0`], env);
    assertEquals(pulled.code, 0, pulled.stderr);
    assertStringIncludes(pulled.stdout, "Tiny-Q8_0: 1.7 MB in ");
    assertStringIncludes(pulled.stdout, "SHA-256 as promised");
    const answer = await run(folder, [
      "generate",
      "--model",
      "Tiny-Q8_0",
      "--chat",
      "Who are you?",
      "-n",
      "4",
    ]);
    assertEquals(answer.code, 0, answer.stderr);
    const { models, unfinished } = JSON.parse((await run(folder, ["pull", "list", "--json"])).stdout);
    assertEquals([models[0].name, models[0].bytes, unfinished], ["Tiny-Q8_0", demo.length, []]);
    assertStringIncludes(
      (await run(folder, ["pull", "rm", "Tiny-Q8_0"])).stdout,
      "Tiny-Q8_0: removed 1.7 MB",
    );
    const gone = await run(folder, ["generate", "--model", "Tiny-Q8_0", "--chat", "Hi"]);
    assertEquals(gone.code, 1);
    assertStringIncludes(gone.stderr, "no model in");
  });
});

fullTier.test("cli: pull resumes after a kill, stop or fault, and a second process stops", async () => {
  await using hub = new TestHub({ repositories: { [REPO]: { "Tiny-F16.gguf": MODEL } } });
  const command = ["pull", `hf:${REPO}`, "--json", "--mirror", hub.endpoint];
  await withFolder(async (folder) => {
    hub.most = MODEL.length / 2;
    const killed = start(folder, command);
    await until("half of the file", () => hub.sent >= hub.most);
    const second = await run(folder, command);
    assertEquals(second.code, 1);
    assertStringIncludes(second.stderr, `Another process (PID ${killed.pid}) is pulling "Tiny-F16"`);
    // Progress is saved at intervals.
    await until("a record of most of it", async () => {
      const { unfinished } = JSON.parse((await run(folder, ["pull", "list", "--json"])).stdout);
      return unfinished[0]?.bytes_done > MODEL.length / 4;
    });
    killed.kill("SIGKILL");
    await killed.output();
    hub.most += 1_000_000;
    const interrupted = start(folder, command);
    await until("a little more", () => hub.sent >= hub.most);
    interrupted.kill("SIGINT");
    const { code, stdout, stderr } = await interrupted.output();
    assertEquals(code, 1);
    assertStringIncludes(
      new TextDecoder().decode(stderr),
      "Stopped; the downloaded bytes are kept, and the same command resumes",
    );
    assertStringIncludes(new TextDecoder().decode(stdout), `{"event":"error","code":"PULL_STOPPED"`);
    hub.most = Infinity;
    const last = await run(folder, command);
    assertEquals(last.code, 0, last.stderr);
    const events = last.stdout.trimEnd().split("\n").map((line) => JSON.parse(line));
    const [begin, done] = [events.find(({ event }) => event === "begin"), events.at(-1)];
    assert(begin.kept > MODEL.length / 4, `${begin.kept} bytes of ${MODEL.length} are kept`);
    assertEquals([done.event, done.fetched], ["done", MODEL.length - begin.kept]);
    const counts = events.flatMap(({ stage, bytes }) => stage === "download" ? [bytes] : []);
    assertEquals(counts, counts.toSorted((a, b) => a - b));
    assertEquals(sha256(await Deno.readFile(join(folder, "Tiny-F16.gguf"))), sha256(MODEL));
  });
});

fullTier.test("cli: pull uses the user's model list, and reports folders without write permission", async () => {
  await using hub = new TestHub({ repositories: { [REPO]: { "Tiny-F16.gguf": MODEL } } });
  await withFolder(async (folder) => {
    const list = join(folder, "list.json");
    const source = `${hub.cdn}/${REPO}/Tiny-F16.gguf`;
    await Deno.writeTextFile(list, JSON.stringify({ mine: { source, sha256: sha256(MODEL) } }));
    const env = { COMPY_MODEL_LIST: list };
    assertStringIncludes((await run(folder, ["pull", "names"], env)).stdout, `\nmine `);
    const pulled = await run(folder, ["pull", "mine", "--as", "ours"], env);
    assertEquals(pulled.code, 0, pulled.stderr);
    assertStringIncludes(pulled.stdout, "SHA-256 as promised");
    const elsewhere = await run(folder, ["pull", "mine", "--models", `${folder}-not`], env);
    assertEquals(elsewhere.code, 1);
    assertStringIncludes(elsewhere.stderr, "this task may write to .compy only");
    const unknown = await run(folder, ["pull", "nobody"]);
    assertEquals(unknown.code, 2);
    assertStringIncludes(
      unknown.stderr,
      "must begin with hf: or https://, or be a name in the list of models",
    );
  });
});
