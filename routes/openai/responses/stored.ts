import { z } from "@hono/zod-openapi";
import { endpoint } from "../../core/endpoint.ts";
import { ApiError } from "../../core/errors.ts";
import { cursor, digits, listOf, pageOf } from "../../core/lists.ts";
import { responseAnswer } from "./answer.ts";
import { inputItemsOf } from "./history.ts";

/* The stored answers of /v1/responses. */

const DEFAULT_LIST = 20;

const params = z.object({ id: z.string().openapi({ example: "resp_0123456789abcdef0123456789abcdef" }) });
const missing = { 404: "No such response is stored" };
const head = { tag: "Generation", params, refusals: missing };

const one = endpoint({
  ...head,
  method: "get",
  path: "/v1/responses/{id}",
  operationId: "retrieveResponse",
  summary: "Return a stored response",
  query: z.object({
    stream: z.enum(["false"], { error: "must be left out: stored responses are returned whole" }).optional(),
  }),
  answer: responseAnswer,
  answers: "The response",
}, async ({ params: { id }, owner }, { responses }) => {
  const { head, output } = found(id, await responses.of(owner)?.read(id));
  return { ...head, output } as unknown as z.output<typeof responseAnswer>;
});

const remove = endpoint({
  ...head,
  method: "delete",
  path: "/v1/responses/{id}",
  operationId: "deleteResponse",
  summary: "Delete a stored response",
  description: "Afterwards no request can continue this response, or a later response that continues it.",
  answer: z.object({ id: z.string(), object: z.literal("response"), deleted: z.literal(true) })
    .openapi("ResponseDeleted"),
  answers: "It is gone",
}, async ({ params: { id }, owner }, { responses }) => {
  found(id, await responses.of(owner)?.remove(id) || undefined);
  return { id, object: "response" as const, deleted: true as const };
});

const item = z.looseObject({ id: z.string(), type: z.string() });

const inputItems = endpoint({
  ...head,
  method: "get",
  path: "/v1/responses/{id}/input_items",
  operationId: "listResponseInputItems",
  summary: "List the input items of a stored response",
  description: "The list has the items of the earlier responses that this response continues, too.",
  query: z.object({
    after: cursor,
    limit: digits(1, 100).optional().openapi({ description: `Default ${DEFAULT_LIST}` }),
    order: z.enum(["asc", "desc"]).optional().openapi({ description: "Default desc, newest first" }),
  }),
  answer: listOf(item, "ResponseItemList"),
  answers: "A page",
}, async ({ params: { id }, query, owner }, { responses }) => {
  const stored = responses.of(owner);
  const items = await inputItemsOf(found(id, await stored?.read(id)), stored!) as z.output<typeof item>[];
  if (query.order !== "asc") items.reverse();
  const start = query.after === undefined ? 0 : placeOf(items, query.after) + 1;
  const end = start + (query.limit ?? DEFAULT_LIST);
  return pageOf(items.slice(start, end), end < items.length);
});

export const storedResponses = [one, remove, inputItems];

function placeOf(items: readonly { id: string }[], after: string): number {
  const place = items.findIndex(({ id }) => id === after);
  if (place >= 0) return place;
  const message = `Invalid "after": there is no ${JSON.stringify(after)} in this list`;
  throw new ApiError(400, "invalid_value", message, { param: "after" });
}

function found<T>(id: string, response: T | undefined): T {
  if (response !== undefined) return response;
  const message = `Response with id '${id.slice(0, 100)}' not found.`;
  throw new ApiError(404, "response_not_found", message, { param: "id" });
}
