import type { Commands } from "./completions.ts";

/** All commands. Each is loaded when it is called, so that `generate` does not load the server. */
export const COMMANDS: Commands = {
  serve: {
    summary: "serve the OpenAI API with one model or several",
    load: async () => (await import("./serve/serve.ts")).serveCommand,
  },
  chat: {
    summary: "chat with a model in the terminal",
    load: async () => (await import("./chat/chat.ts")).chatCommand,
  },
  generate: {
    summary: "generate text from one prompt",
    load: async () => (await import("./generate.ts")).generateCommand,
  },
  tokenize: {
    summary: "convert text into token ids",
    load: async () => (await import("./tokenize.ts")).tokenizeCommand,
  },
  batch: {
    summary: "answer a file of requests in OpenAI's batch format",
    load: async () => (await import("./batch/batch.ts")).batchTask,
    hasVerbs: true,
  },
  embed: {
    summary: "convert a file of texts into vectors",
    load: async () => (await import("./embed/embed.ts")).embedCommand,
  },
  cache: {
    summary: "show or empty a folder of stored prompts",
    load: async () => (await import("./cache.ts")).cacheCommand,
    hasVerbs: true,
  },
  inspect: {
    summary: "describe a model file and the memory it needs",
    load: async () => (await import("./inspect.ts")).inspectCommand,
  },
  doctor: {
    summary: "report what this machine can do, what is slow or wrong, and what to do about it",
    load: async () => (await import("./doctor.ts")).doctorCommand,
  },
  pull: {
    summary: "download a model with checks and resume; list and remove models",
    load: async () => (await import("./pull/pull.ts")).pullCommand,
  },
  convert: {
    summary: "convert a Hugging Face or MLX checkpoint into a GGUF file",
    load: async () => (await import("./convert.ts")).convertCommand,
  },
  bench: {
    summary: "measure how fast a model runs on this machine",
    load: async () => (await import("./bench.ts")).benchCommand,
  },
  perplexity: {
    summary: "measure how well a model predicts a text, and its KL divergence from another model",
    load: async () => (await import("./perplexity.ts")).perplexityCommand,
  },
  imatrix: {
    summary: "collect an importance matrix, with which convert quantizes better",
    load: async () => (await import("./imatrix.ts")).imatrixCommand,
  },
  completions: {
    summary: "print shell completions for compy",
    load: async () => {
      const { completionsCommand } = await import("./completions.ts");
      return (args) => completionsCommand(args, COMMANDS);
    },
  },
};
