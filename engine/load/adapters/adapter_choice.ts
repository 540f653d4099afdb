import { EngineError } from "../../api/errors.ts";
import { MAX_SCALE } from "../../api/request.ts";

/** An adapter file, and the default scale of its changes. */
export interface AdapterChoice {
  readonly path: string;
  readonly scale: number;
}

/** Returns the choices of texts FILE or FILE=SCALE. Throws EngineError invalid_request if a scale is not a number. */
export function adapterChoices(texts: readonly string[] = []): AdapterChoice[] {
  return texts.map((text) => {
    const at = text.lastIndexOf("=");
    const scale = at < 0 ? "" : text.slice(at + 1);
    // The text after "=" belongs to the path: a file's name may contain "=".
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
