import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { dirname, join } from "@std/path";
import { TestHub } from "../hub/testing_hub.ts";
import { root, withFolder } from "../testing/commands.ts";
import { fullTier } from "../testing/tier.ts";

/* Runs the README's shell commands one after the other, in the root of a checkout. */

const MODEL = "readme-Q4_K_M";
const ANSWER = "My name is compy. I am a very small language model.";

const readme = await Deno.readTextFile(join(root, "README.md"));

/** The commands of the ```sh blocks, each with its continuation lines. */
const commands = [...readme.matchAll(/^```sh\n(.*?)^```$/gms)]
  .flatMap(([, block]) => block.replaceAll("\\\n", " ").trim().split("\n"));

Deno.test("README: shows an installation, one command and its answer within 15 lines", () => {
  const front = readme.split("\n").slice(0, 15).join("\n");
  for (const shown of ["not published yet", "task serve", "curl", ANSWER]) assertStringIncludes(front, shown);
  assert(readme.trimEnd().split("\n").length <= 120, "the README has at most 120 lines");
});

fullTier.test("README: every shell command works", async (t) => {
  const demo = await Deno.readFile(join(root, "models/demo.gguf"));
  await using hub = new TestHub({ repositories: { "OWNER/REPO": { [`${MODEL}.gguf`]: demo } } });
  await withFolder(async (folder) => {
    const shell = new Shell(folder, hub.endpoint);
    try {
      for (const command of commands) await t.step(command, () => shell.run(command));
      assertEquals(await linesOf(join(folder, "answers.jsonl")), 3);
      assertEquals(await linesOf(join(folder, "labelled.csv")), 4);
    } finally {
      await shell.close();
    }
  });
});

/** Runs commands with a separate port, models folder and output files. A server runs until the next one starts. */
class Shell {
  #port = 0;
  #server: Deno.ChildProcess | undefined;

  constructor(readonly folder: string, readonly hub: string) {}

  async run(command: string): Promise<void> {
    const own = command.replace(" NAME", ` ${MODEL}`)
      .replace(/answers\.jsonl|labelled\.csv/, (file) => join(this.folder, file));
    if (own.includes("task serve")) return await this.#serve(own);
    const { code, stdout, stderr } = await this.#start(own.replace("8080", `${this.#port}`)).output();
    assertEquals(code, 0, text(stderr));
    assert(stdout.length + stderr.length > 0, "the command printed nothing");
    if (own.startsWith("curl")) assertStringIncludes(text(stdout), ANSWER);
  }

  async #serve(command: string): Promise<void> {
    await this.#stop();
    this.#server = this.#start(command);
    const { promise, resolve, reject } = Promise.withResolvers<string>();
    this.#read(this.#server, resolve).then((said) => reject(new Error(`serve ended: ${said}`)));
    this.#port = Number(new URL(await promise).port);
  }

  /** Reads a server's output and reports its address. Returns the whole output when the server has ended. */
  async #read(server: Deno.ChildProcess, address: (url: string) => void): Promise<string> {
    const errors = new Response(server.stderr).text();
    let said = "";
    for await (const chunk of server.stdout.pipeThrough(new TextDecoderStream())) {
      said += chunk;
      const url = /listening on (http:\S+)/.exec(said)?.[1];
      if (url) address(url);
    }
    return said + await errors;
  }

  #start(command: string): Deno.ChildProcess {
    const env = {
      NO_COLOR: "1",
      PATH: `${dirname(Deno.execPath())}:${Deno.env.get("PATH")}`,
      COMPY_PORT: "0",
      COMPY_DATA: "none",
      HF_ENDPOINT: this.hub,
    };
    // A task within a task keeps the first one's INIT_CWD.
    const shell = ["-c", `unset INIT_CWD; exec setsid sh -c "$0"`, command];
    return new Deno.Command("sh", {
      args: shell,
      cwd: root,
      env,
      stdin: "null",
      stdout: "piped",
      stderr: "piped",
    })
      .spawn();
  }

  /** Ends the process group of the server and its npx. */
  async #stop(): Promise<void> {
    if (!this.#server) return;
    Deno.kill(-this.#server.pid, "SIGTERM");
    await this.#server.status;
    this.#server = undefined;
  }

  async close(): Promise<void> {
    await this.#stop();
    await this.#start(`deno task pull rm ${MODEL}`).output();
  }
}

async function linesOf(path: string): Promise<number> {
  return (await Deno.readTextFile(path)).trim().split("\n").length;
}

function text(bytes: Uint8Array): string {
  return new TextDecoder().decode(bytes);
}
