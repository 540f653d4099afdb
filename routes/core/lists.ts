import { z } from "@hono/zod-openapi";

/** Schema of a whole number in a query or form, where it comes as text. */
export function digits(min: number, max: number) {
  const message = `must be a whole number from ${min} to ${max}`;
  return z.string().regex(/^\d{1,9}$/, message).transform(Number)
    .pipe(z.number().int().min(min, message).max(max, message))
    .openapi({ type: "integer", minimum: min, maximum: max, pattern: undefined });
}

/** Schema of a cursor: the id of the last entry of the previous page. */
export const cursor = z.string().min(1).max(100).optional().openapi({
  description: "Id of the last entry on the previous page",
});

/** Schema of one page of a list. */
export function listOf<Schema extends z.ZodType>(entry: Schema, name: string) {
  return z.object({
    object: z.literal("list"),
    data: z.array(entry),
    first_id: z.string().nullable(),
    last_id: z.string().nullable(),
    has_more: z.boolean(),
  }).openapi(name);
}

/** Returns one page of a list in OpenAI's format. */
export function pageOf<T extends { id: string }>(data: T[], hasMore: boolean) {
  return {
    object: "list" as const,
    data,
    first_id: data.at(0)?.id ?? null,
    last_id: data.at(-1)?.id ?? null,
    has_more: hasMore,
  };
}

const HOUR = 3600;

/** Allowed lifetime of a file, in seconds. */
export const KEPT_SECONDS = { min: HOUR, max: 30 * 24 * HOUR } as const;

/** Schema of `expires_after` in JSON. */
export const expiry = z.object({
  anchor: z.enum(["created_at"]),
  seconds: z.number().int().min(KEPT_SECONDS.min).max(KEPT_SECONDS.max),
});
