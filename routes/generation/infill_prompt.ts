import { type Engine, EngineError, type InfillTokens, TooManyTokens } from "../../engine/mod.ts";
import { ApiError } from "../core/errors.ts";

/** A text with a gap, and the contents of other files. */
export interface Gap {
  readonly prefix: string;
  readonly suffix: string;
  /** Text at the beginning of the gap. The answer continues it. */
  readonly start: string;
  readonly files: readonly { readonly name: string; readonly text: string }[];
  /** Number of tokens to reserve for the answer. */
  readonly room: number;
}

const REPOSITORY = "repository\n";
const THIS_FILE = "this file\n";

/**
 * Returns the prompt of an infill model: other files, then the text before and after the gap. It includes the last
 * files that fit; `truncated`: not all fit. Throws ApiError 400 if the model has no infill tokens, and EngineError
 * context_length_exceeded if the text alone is too long.
 */
export function infillPrompt(engine: Engine, gap: Gap): { tokens: number[]; truncated: boolean } {
  const { infill } = engine.tokenizer;
  if (!infill) {
    const message =
      `The model "${engine.model.id}" cannot fill gaps: its vocabulary has no tokens for that; ` +
      "use /v1/completions, or a model that was trained for it";
    throw new ApiError(400, "infill_not_supported", message);
  }
  const context = engine.model.contextLength;
  const text = [
    infill.prefix,
    ...encode(engine, gap.prefix + gap.start, context),
    infill.suffix,
    ...encode(engine, gap.suffix, context),
    infill.middle,
  ];
  const begin = engine.encodePrompt("");
  const { tokens, truncated } = told(engine, infill, gap, context - begin.length - text.length - gap.room);
  return { tokens: [...begin, ...tokens, ...text], truncated };
}

/** Returns the tokens of the other files that fit in the context. */
function told(engine: Engine, infill: InfillTokens, { files }: Gap, room: number) {
  const encoded = (text: string) => engine.tokenizer.encode(text);
  const begin = infill.repo === undefined ? [] : [infill.repo, ...encoded(REPOSITORY)];
  const end = infill.file === undefined ? [] : [infill.file, ...encoded(THIS_FILE)];
  let left = room - begin.length - end.length;
  const chosen: number[][] = [];
  for (const { name, text } of files.toReversed()) {
    const heading = infill.file === undefined
      ? encoded(`\n\n--- ${name} ---\n\n`)
      : [infill.file, ...encoded(`${name}\n`)];
    const body = encodeAtMost(engine, text, left - heading.length);
    if (!body) break;
    chosen.unshift([...heading, ...body]);
    left -= heading.length + body.length;
  }
  return {
    tokens: chosen.length === 0 ? [] : [...begin, ...chosen.flat(), ...end],
    truncated: chosen.length < files.length,
  };
}

function encodeAtMost({ tokenizer }: Engine, text: string, atMost: number): number[] | undefined {
  if (atMost <= 0) return undefined;
  try {
    return tokenizer.encode(text, { atMost });
  } catch (error) {
    if (error instanceof TooManyTokens) return undefined;
    throw error;
  }
}

function encode(engine: Engine, text: string, context: number): number[] {
  const tokens = encodeAtMost(engine, text, 4 * context);
  if (tokens) return tokens;
  const message = `The text around the gap has more than ${4 * context} tokens; the context has ${context}`;
  throw new EngineError("context_length_exceeded", message, { n_ctx: context });
}
