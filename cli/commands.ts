import type { Commands } from "./completions.ts";

/** Loaded when called: what serves need not be read to generate. */
export const COMMANDS: Commands = {
  serve: {
    summary: "serve the OpenAI API over one model",
    load: async () => (await import("./serve/serve.ts")).serveCommand,
  },
  chat: {
    summary: "chat with a model on the terminal",
    load: async () => (await import("./chat/chat.ts")).chatCommand,
  },
  generate: {
    summary: "generate text from one prompt",
    load: async () => (await import("./generate.ts")).generateCommand,
  },
  tokenize: {
    summary: "turn text into token ids",
    load: async () => (await import("./tokenize.ts")).tokenizeCommand,
  },
  batch: {
    summary: "answer a file of requests, as OpenAI's batches do",
    load: async () => (await import("./batch/batch.ts")).batchTask,
    hasVerbs: true,
  },
  embed: {
    summary: "turn a file of texts into vectors",
    load: async () => (await import("./embed/embed.ts")).embedCommand,
  },
  cache: {
    summary: "look into a folder of prompts, or empty it",
    load: async () => (await import("./cache.ts")).cacheCommand,
    hasVerbs: true,
  },
  inspect: {
    summary: "describe a model file and what running it takes",
    load: async () => (await import("./inspect.ts")).inspectCommand,
  },
  doctor: {
    summary: "say what this machine can do, what is slow or wrong, and what to do about it",
    load: async () => (await import("./doctor.ts")).doctorCommand,
  },
  pull: {
    summary: "download a model, checked and resumable; list and remove models",
    load: async () => (await import("./pull/pull.ts")).pullCommand,
  },
  convert: {
    summary: "convert a checkpoint of Hugging Face or MLX into a GGUF file",
    load: async () => (await import("./convert.ts")).convertCommand,
  },
  bench: {
    summary: "measure how fast a model runs here",
    load: async () => (await import("./bench.ts")).benchCommand,
  },
  completions: {
    summary: "print what completes compy's words in a shell",
    load: async () => {
      const { completionsCommand } = await import("./completions.ts");
      return (args) => completionsCommand(args, COMMANDS);
    },
  },
};
