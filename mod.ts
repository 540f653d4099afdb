/**
 * GGUF language models in a program: load one, chat with it, generate, embed.
 *
 * ```ts
 * import { loadModel } from "compy";
 *
 * await using model = await loadModel(); // or a file: loadModel("qwen3-4b-q4_0.gguf")
 * for await (const { text } of model.chat("Who are you?", { maxTokens: 40 })) {
 *   if (text) console.log(text);
 * }
 * ```
 *
 * @module
 */

export type { AnswerStream } from "./lib/answer_stream.ts";
export {
  type BatchCounts,
  type BatchOptions,
  type BatchProgress,
  type BatchRefusal,
  type BatchResult,
  runBatch,
} from "./lib/batch/batch.ts";
export {
  type BatchCheck,
  type BatchCheckOptions,
  type BatchStatus,
  batchStatus,
  cancelBatch,
  checkBatch,
} from "./lib/batch/control.ts";
export type { BatchTable } from "./lib/batch/table.ts";
export type { Chat, ChatAnswer, ChatOptions, ChatPart, Tool, ToolChoice } from "./lib/chat.ts";
export type { Embeddings, EmbedOptions, Reranked, RerankOptions } from "./lib/embed.ts";
export { type BatchErrorCode, CompyError, type EngineErrorCode, type ErrorCode } from "./lib/errors.ts";
export type {
  GeneratedPart,
  GeneratedText,
  Generation,
  Progress,
  Timings,
  TokenScore,
  Usage,
} from "./lib/generate.ts";
export type {
  AssistantMessage,
  ImageFile,
  Message,
  SystemMessage,
  ToolCall,
  ToolMessage,
  UserMessage,
} from "./lib/messages.ts";
export {
  type Accuracy,
  type ActivationPrecision,
  type Arithmetic,
  type BackendName,
  type KvType,
  loadModel,
  type LoadOptions,
  Model,
  type ModelInfo,
  type PoolingKind,
  type Speculate,
  type TokenizeOptions,
} from "./lib/model.ts";
export { createServer } from "./lib/server.ts";
export type { Address, ListenOptions, Server, ServerOptions } from "./lib/server_types.ts";
export type { GenerateOptions, JsonSchema, SamplingParams } from "./lib/options.ts";
