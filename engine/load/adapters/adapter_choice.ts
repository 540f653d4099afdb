import { EngineError } from "../../api/errors.ts";
import { MAX_SCALE } from "../../api/request.ts";

/** An adapter file, and the factor that requests use it with by default. */
export interface AdapterChoice {
  readonly path: string;
  readonly scale: number;
}

/** Returns the choices of texts FILE or FILE=SCALE. Throws EngineError invalid_request for a scale that is not a number. */
export function adapterChoices(texts: readonly string[] = []): AdapterChoice[] {
  return texts.map((text) => {
    const at = text.lastIndexOf("=");
    const scale = at < 0 ? "" : text.slice(at + 1);
    // Part of the path: a file may have "=" in its name.
    if (at < 0 || /[/.]gguf$|\//i.test(scale)) return { path: text, scale: 1 };
    if (/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(scale) && Math.abs(Number(scale)) <= MAX_SCALE) {
      return { path: text.slice(0, at), scale: Number(scale) };
    }
    const detail = `must be FILE or FILE=SCALE, with a number from -${MAX_SCALE} to ${MAX_SCALE} as scale`;
    throw new EngineError("invalid_request", [
      { lora: undefined },
      ` ${detail} (got ${JSON.stringify(text)})`,
    ]);
  });
}
