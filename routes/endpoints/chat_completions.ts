import type { ChatMessage, Engine, GenerateRequest, Usage } from "../../engine/types.ts";
import {
  answerHead,
  answersTo,
  checkModel,
  engineRequest,
  generate,
  type Prepared,
  type RunOptions,
  usageOf,
} from "../shared/generation.ts";
import { chatLogprobs } from "../shared/logprobs.ts";
import type { Piece, ScoredToken } from "../shared/piece_reader.ts";
import type { ChatChunk, ChatCompletion } from "../shared/answers.ts";
import type { ChatBody, ChatMessageBody } from "../schemas/chat.ts";

/** Throws ApiError, or what the engine throws for a template that refuses. */
export function prepareChat(engine: Engine, body: ChatBody, options: RunOptions): Prepared {
  checkModel(engine, body.model);
  const n = body.n ?? 1;
  const request: GenerateRequest = {
    ...engineRequest(engine, body, options),
    prompt: encodeMessages(engine, body),
    maxTokens: body.max_completion_tokens ?? body.max_tokens ?? undefined,
    logprobs: body.logprobs ? body.top_logprobs ?? 0 : undefined,
  };
  const requests = answersTo(request, n);
  return {
    stream: body.stream ?? false,
    answer: (signal) => wholeChat(engine, body, generate(engine, requests, signal)),
    chunks: (signal) => chatChunks(engine, body, generate(engine, requests, signal)),
  };
}

function encodeMessages(engine: Engine, body: Pick<ChatBody, "messages" | "chat_template_kwargs">): number[] {
  const variables = body.chat_template_kwargs ?? {};
  return engine.encodeChat(toMessages(body.messages), { addGenerationPrompt: true, variables });
}

/** Messages as templates know them: `developer` is `system`, text parts are joined by line breaks. */
export function toMessages(messages: readonly ChatMessageBody[]): ChatMessage[] {
  return messages.map(({ role, content, ...others }) => {
    const text = Array.isArray(content) ? content.map((part) => part.text).join("\n") : content ?? null;
    const given = Object.entries(others).filter(([, value]) => value !== undefined && value !== null);
    return {
      ...Object.fromEntries(given),
      role: role === "developer" ? "system" : role,
      content: text === null ? null : text.toWellFormed(),
    };
  });
}

async function wholeChat(
  engine: Engine,
  body: ChatBody,
  pieces: AsyncIterable<Piece>,
): Promise<ChatCompletion> {
  const n = body.n ?? 1;
  const texts: string[] = new Array(n).fill("");
  const tokens: ScoredToken[][] = Array.from({ length: n }, () => []);
  const reasons: ("stop" | "length")[] = new Array(n).fill("length");
  const usages: Usage[] = new Array(n);
  for await (const piece of pieces) {
    if (piece.type === "text") {
      texts[piece.index] += piece.text;
      for (const token of piece.tokens) tokens[piece.index].push(token);
    } else if (piece.type === "finish") {
      reasons[piece.index] = piece.reason;
      usages[piece.index] = piece.usage;
    }
  }
  return {
    ...answerHead(engine, "chatcmpl"),
    object: "chat.completion",
    choices: texts.map((content, index) => ({
      index,
      message: { role: "assistant", content, refusal: null },
      logprobs: body.logprobs ? chatLogprobs(engine, tokens[index]) : null,
      finish_reason: reasons[index],
    })),
    usage: usageOf(usages, n),
  };
}

type ChatChoice = ChatChunk["choices"][number];

async function* chatChunks(
  engine: Engine,
  body: ChatBody,
  pieces: AsyncIterable<Piece>,
): AsyncGenerator<ChatChunk> {
  const n = body.n ?? 1;
  const withUsage = body.stream_options?.include_usage ?? false;
  const head = {
    ...answerHead(engine, "chatcmpl"),
    object: "chat.completion.chunk" as const,
    ...(withUsage ? { usage: null } : {}),
  };
  const usages: Usage[] = new Array(n);
  const started: boolean[] = new Array(n).fill(false);
  const choice = (index: number, delta: ChatChoice["delta"], rest: Partial<ChatChoice> = {}): ChatChunk => ({
    ...head,
    choices: [{ index, delta, logprobs: null, finish_reason: null, ...rest }],
  });
  for await (const piece of pieces) {
    const { index } = piece;
    if (!started[index]) {
      started[index] = true;
      yield choice(index, { role: "assistant", content: "", refusal: null });
    }
    if (piece.type === "progress" && body.return_progress) {
      yield { ...choice(index, {}), prompt_progress: piece.progress };
    } else if (piece.type === "text") {
      const logprobs = body.logprobs ? chatLogprobs(engine, piece.tokens) : null;
      yield choice(index, { content: piece.text }, { logprobs });
    } else if (piece.type === "finish") {
      usages[index] = piece.usage;
      yield choice(index, {}, { finish_reason: piece.reason });
    }
  }
  if (withUsage) yield { ...head, choices: [], usage: usageOf(usages, n) };
}
