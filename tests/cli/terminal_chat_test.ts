import { assert, assertEquals, assertMatch } from "@std/assert";
import { delay } from "@std/async/delay.js";
import { join } from "@std/path";
import { cellsOf } from "../../cli/chat/word_wrap.ts";
import { quoted } from "../../cli/shared/start.ts";
import { hasScript, root, withFolder } from "../../testing/commands.ts";
import { fullTier } from "../../testing/tier.ts";

const COLUMNS = 30;
/** Milliseconds after its permission question in which Deno ignores keys. */
const QUIET_MS = 500;

/** A chat on a pseudoterminal of 30 columns. */
class TerminalChat {
  readonly #child: Deno.ChildProcess;
  readonly #input: WritableStreamDefaultWriter<Uint8Array>;
  readonly #output: AsyncIterator<string>;
  #unread = "";

  constructor(cwd: string, args: readonly string[]) {
    const chat = [Deno.execPath(), "task", "-q", "chat", ...args].map(quoted).join(" ");
    this.#child = new Deno.Command("script", {
      args: ["-qefc", `stty cols ${COLUMNS}; ${chat}`, "/dev/null"],
      cwd: root,
      env: { INIT_CWD: cwd, NO_COLOR: "1", TERM: "xterm" },
      stdin: "piped",
      stdout: "piped",
    }).spawn();
    this.#input = this.#child.stdin.getWriter();
    this.#output = this.#child.stdout.pipeThrough(new TextDecoderStream())[Symbol.asyncIterator]();
  }

  async type(keys: string): Promise<void> {
    await this.#input.write(new TextEncoder().encode(keys));
  }

  /** Returns the characters that the terminal receives until the text appears. */
  async until(text: string): Promise<string> {
    while (!this.#unread.includes(text)) {
      const { done, value } = await this.#output.next();
      assert(!done, `the chat ended before ${text}: ${this.#unread}`);
      this.#unread += value;
    }
    const end = this.#unread.indexOf(text) + text.length;
    const seen = this.#unread.slice(0, end);
    this.#unread = this.#unread.slice(end);
    return seen;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#input.close().catch(() => {});
    try {
      this.#child.kill("SIGKILL");
    } catch {
      // The chat has already ended.
    }
    await this.#child.status;
    while (!(await this.#output.next()).done);
  }

  /** Returns the exit code once the chat has ended. */
  async end(): Promise<number> {
    while (!(await this.#output.next()).done);
    return (await this.#child.status).code;
  }
}

fullTier.test({
  name: "terminal chat: wraps answers, completes names, asks before it writes, and ends on two Ctrl-C",
  ignore: !hasScript,
  fn: async () => {
    await withFolder(async (folder) => {
      await using chat = new TerminalChat(folder, ["--temperature", "0"]);
      await chat.until("> ");
      await chat.type("Who are you?\r");
      await chat.until("you?\r\r\n");
      const answer = (await chat.until("a second]")).split("\r\n");
      assertEquals(
        answer.slice(0, -1).join(" ").trim(),
        "My name is compy. I am a very small language model.",
      );
      for (const line of answer) assert(cellsOf(line) <= COLUMNS, line);
      await chat.until("> ");
      await chat.type("/set min\t0.1\r");
      await chat.until("min-p: 0.1\r\n");
      await chat.until("> ");
      await chat.type("/save talk.json\r");
      assertMatch(await chat.until("Allow?"), /write access to "talk\.json"/);
      await delay(QUIET_MS);
      await chat.type("y\n");
      await chat.until("messages are saved");
      const { messages, settings } = JSON.parse(await Deno.readTextFile(join(folder, "talk.json")));
      assertEquals([messages.length, settings], [2, { temperature: 0, min_p: 0.1 }]);
      await chat.until("> ");
      await chat.type("\x03");
      await chat.until("leaves");
      await chat.until("> ");
      await chat.type("\x03");
      assertEquals(await chat.end(), 0);
    });
  },
});
