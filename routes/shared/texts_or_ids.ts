import { z } from "@hono/zod-openapi";
import { documented, isTokenIds, PROMPT_TEXT, TOKEN_ID } from "./fields.ts";

/** One text or several, each as text or as token ids. */
export type TextsOrIds = string | string[] | number[] | number[][];

/** The field of that `name`, of at most so many texts. Checked by hand, as `tokenIds` are. */
export function textsOrIds(name: string, most: number) {
  const error =
    `Invalid "${name}": must be a text, an array of token ids, or an array of up to ${most} of either`;
  return documented(z.custom<TextsOrIds>((value) => isTextsOrIds(value, most), { error }), {
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

/** Each of them by itself. */
export function each(texts: TextsOrIds): readonly (string | number[])[] {
  if (typeof texts === "string") return [texts];
  return typeof texts[0] === "number" ? [texts as number[]] : texts as (string | number[])[];
}

const isIds = (value: unknown) => isTokenIds(value) && value.length > 0;

function isTextsOrIds(value: unknown, most: number): value is TextsOrIds {
  if (typeof value === "string" || isIds(value)) return true;
  if (!Array.isArray(value) || value.length === 0 || value.length > most) return false;
  return value.every((text) => typeof text === "string") || value.every(isIds);
}
