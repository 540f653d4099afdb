import { assert, assertEquals } from "@std/assert";
import { delay } from "@std/async/delay.js";
import { join } from "@std/path";
import { quoted } from "../../cli/shared/start.ts";
import { hasScript, root, withFolder } from "../../testing/commands.ts";

/** Runs a command on a pseudoterminal, with its output in `log`. Killing the child closes the terminal. */
function onTerminal(args: readonly string[], log: string): Deno.ChildProcess {
  const command = [Deno.execPath(), "run", "-q", ...args].map(quoted).join(" ");
  return new Deno.Command("script", {
    args: ["-qefc", `exec ${command}`, log],
    cwd: root,
    env: { NO_COLOR: "1", TERM: "xterm" },
    stdin: "piped",
    stdout: "null",
    stderr: "null",
  }).spawn();
}

/** Returns the first result that is not undefined. Fails after ten seconds. */
async function eventually<T>(what: string, look: () => Promise<T | undefined>): Promise<T> {
  for (let tries = 0; tries < 500; tries++) {
    const found = await look();
    if (found !== undefined) return found;
    await delay(20);
  }
  throw new Error(`It took more than ten seconds: ${what}`);
}

async function hangUp(terminal: Deno.ChildProcess): Promise<void> {
  terminal.kill("SIGKILL");
  await terminal.status;
  await terminal.stdin.close().catch(() => {});
}

/** Starts a server on a terminal and returns its address. */
async function served(folder: string) {
  const log = join(folder, "log");
  const data = join(folder, "data");
  const allowed = `--allow-write=${data}`;
  const given = [
    "-P=serve",
    allowed,
    "main.ts",
    "serve",
    "--port",
    "0",
    "--data",
    data,
    "--backend",
    "wasm",
  ];
  const terminal = onTerminal(given, log);
  const url = await eventually("the server listens", async () => {
    const printed = await Deno.readTextFile(log).catch(() => "");
    return /listening on (http:\S+)/.exec(printed)?.[1];
  });
  return { terminal, url };
}

Deno.test({
  name: "serve: ends its running requests and stops when its terminal hangs up",
  ignore: !hasScript,
  fn: () =>
    withFolder(async (folder) => {
      const { terminal, url } = await served(folder);
      const request = {
        prompt: "Once upon a time",
        max_tokens: 40,
        temperature: 0,
        stream: true,
        ignore_eos: true,
      };
      const response = await fetch(`${url}/v1/completions`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(request),
      });
      const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
      let text = (await reader.read()).value!;
      await hangUp(terminal);
      for (let part = await reader.read(); !part.done; part = await reader.read()) text += part.value;
      assert(text.endsWith("data: [DONE]\n\n"), text.slice(-200));
      await eventually(
        "the server stops",
        () => fetch(url).then((r) => r.body?.cancel(), () => true as const),
      );
    }),
});

Deno.test({
  name: "batch run: ends the lines in flight and can resume when its terminal hangs up",
  ignore: !hasScript,
  fn: () =>
    withFolder(async (folder) => {
      const [input, output] = ["in.jsonl", "out.jsonl"].map((name) => join(folder, name));
      const body = { model: "demo", prompt: "Once", max_tokens: 30, temperature: 0, ignore_eos: true };
      const lines = Array.from({ length: 2000 }, (_, n) =>
        JSON.stringify({ custom_id: `${n}`, method: "POST", url: "/v1/completions", body }));
      await Deno.writeTextFile(input, lines.join("\n"));
      const given = ["-P=batch", "main.ts", "batch", "run", input, "--out", output, "--backend", "wasm"];
      const terminal = onTerminal(given, join(folder, "log"));
      const status = () =>
        Deno.stat(`${output}.status`).then(() => true as const, () => undefined);
      await eventually("lines are answered", async () => {
        const journal = await Deno.stat(`${output}.journal`).catch(() => undefined);
        return (journal?.size ?? 0) > 20_000 ? await status() : undefined;
      });
      await hangUp(terminal);
      // A killed job leaves this file behind.
      await eventually("the job stops by itself", async () => await status() ? undefined : true);
      assertEquals(await Deno.stat(output).catch(() => "none"), "none");
    }),
});
