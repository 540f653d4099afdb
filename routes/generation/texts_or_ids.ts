import { z } from "@hono/zod-openapi";
import { checkTokenIds, documented, PROMPT_TEXT, TOKEN_ID } from "../core/fields.ts";

/** A field of one or several texts, each as text or as token ids. */
export type TextsOrIds = string | string[] | number[] | number[][];

/** Schema of up to `most` texts. Checked by hand, like `tokenIds`. */
export function textsOrIds(most: number) {
  const error = `must be a text, an array of token ids, or an array of up to ${most} of either`;
  const shape = z.custom<TextsOrIds>((value) => hasShape(value, most), { error, abort: true });
  return documented(shape.superRefine(checkEntries), {
    type: ["string", "array"],
    oneOf: [
      PROMPT_TEXT,
      { type: "array", items: PROMPT_TEXT, minItems: 1, maxItems: most },
      { type: "array", items: TOKEN_ID, minItems: 1 },
      {
        type: "array",
        items: { type: "array", items: TOKEN_ID, minItems: 1 },
        minItems: 1,
        maxItems: most,
      },
    ],
  });
}

/** Returns the texts one by one. */
export function each(texts: TextsOrIds): readonly (string | number[])[] {
  if (typeof texts === "string") return [texts];
  return typeof texts[0] === "number" ? [texts as number[]] : texts as (string | number[])[];
}

/** Returns whether the field's first entry has one of the allowed forms. */
function hasShape(value: unknown, most: number): boolean {
  if (typeof value === "string") return true;
  if (!Array.isArray(value) || value.length === 0) return false;
  const [first] = value;
  return typeof first === "number" ||
    value.length <= most && (typeof first === "string" || Array.isArray(first));
}

/** Reports the first entry whose kind differs from that of the first entry. */
function checkEntries(texts: TextsOrIds, ctx: z.RefinementCtx): void {
  if (typeof texts === "string") return;
  if (typeof texts[0] === "number") return checkTokenIds(texts, ctx);
  const isText = typeof texts[0] === "string";
  const at = texts.findIndex((entry) =>
    isText ? typeof entry !== "string" : !Array.isArray(entry) || entry.length === 0
  );
  if (at >= 0) {
    const message = isText
      ? "must be a text, like the earlier entries"
      : "must be an array of at least one token id";
    ctx.addIssue({ code: "custom", path: [at], message, input: texts[at] });
  } else if (!isText) {
    for (const [i, ids] of (texts as number[][]).entries()) checkTokenIds(ids, ctx, [i]);
  }
}
