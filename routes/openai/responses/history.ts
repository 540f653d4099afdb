import {
  MOST_RESPONSE_BYTES,
  type OwnedResponses,
  type StoredItem,
  type StoredResponse,
} from "../../../jobs/service/response_store.ts";
import { ApiError } from "../../core/errors.ts";
import { LIMITS } from "../../core/fields.ts";
import type { RunOptions } from "../../generation/generation.ts";
import { type AnyItem, type Item, itemsOf } from "./items.ts";
import { type ItemIds, responseOf } from "./open_item.ts";

/* Requests that continue stored responses, or refer to their items. */

/** The items of a request's body, and the items of the stored responses that it continues. */
export interface Conversation {
  readonly earlier: readonly Item[];
  readonly input: readonly Item[];
}

interface Body {
  readonly input: string | AnyItem[];
  readonly previous_response_id?: string | null;
}

/**
 * Throws ApiError for a body that needs stored responses if the server stores none. `instead`: advice for the client.
 */
export function refuseStored(body: Body, why: string, instead: string): void {
  const at = itemsOf(body.input).findIndex(({ type }) => type === "item_reference");
  if (!body.previous_response_id && at < 0) return;
  const param = body.previous_response_id ? "previous_response_id" : `input[${at}]`;
  throw new ApiError(400, "unsupported_parameter", `Unsupported "${param}": ${why}; ${instead}`, { param });
}

/** Returns the items of a request. Throws ApiError for a response or item that is not stored. */
export async function conversationOf(
  body: Body,
  options: Pick<RunOptions, "responses">,
): Promise<Conversation> {
  const items = itemsOf(body.input);
  const { responses } = options;
  if (!responses) {
    refuseStored(body, "no responses are stored here", 'send all earlier items in "input"');
    return { earlier: [], input: items as Item[] };
  }
  const [earlier, input] = [
    body.previous_response_id ? await itemsBefore(body.previous_response_id, responses) : [],
    await resolved(items, responses),
  ];
  const count = earlier.length + input.length;
  if (count > LIMITS.messages) {
    throw tooLong(`has ${count} items; at most ${LIMITS.messages} are allowed`);
  }
  return { earlier, input };
}

/** Returns the items of a response and of those that it continues, oldest first. */
async function itemsBefore(id: string, responses: OwnedResponses): Promise<Item[]> {
  const turns: (readonly StoredItem[])[] = [];
  let bytes = 0;
  for (let next: string | null = id; next !== null;) {
    const response: Awaited<ReturnType<OwnedResponses["read"]>> = await responses.read(next);
    if (!response) throw previousNotFound(id, next);
    bytes += response.bytes;
    if (bytes > MOST_RESPONSE_BYTES) throw tooLong(`takes more than ${MOST_RESPONSE_BYTES} bytes`);
    turns.push(response.output, response.input);
    next = response.previous;
  }
  return turns.reverse().flat() as Item[];
}

/** Returns the input items of a stored response, and those of the responses that it continues, oldest first. */
export async function inputItemsOf(
  { previous, input }: StoredResponse,
  responses: OwnedResponses,
): Promise<StoredItem[]> {
  return [...previous === null ? [] : await itemsBefore(previous, responses), ...input];
}

/** Replaces each reference by the item that it names. */
async function resolved(items: readonly AnyItem[], responses: OwnedResponses): Promise<Item[]> {
  const known = new Map<string, StoredItem>();
  const read = new Set<string | undefined>();
  const found: Item[] = [];
  let bytes = 0;
  for (const [i, item] of items.entries()) {
    if (item.type !== "item_reference") {
      found.push(item);
      continue;
    }
    const owner = responseOf(item.id);
    if (owner !== undefined && !read.has(owner)) {
      read.add(owner);
      const response = await responses.read(owner);
      bytes += response?.bytes ?? 0;
      if (bytes > MOST_RESPONSE_BYTES) throw tooLong(`takes more than ${MOST_RESPONSE_BYTES} bytes`);
      for (const stored of [...response?.input ?? [], ...response?.output ?? []]) {
        known.set(stored.id!, stored);
      }
    }
    const stored = known.get(item.id);
    if (!stored) throw itemNotFound(item.id, i);
    found.push(stored as Item);
  }
  return found;
}

/** Returns the items as they are stored and listed: with ids, and with contents as parts. */
export function storedItems(items: readonly Item[], ids: ItemIds): StoredItem[] {
  return items.map((item) => {
    if (!("role" in item)) return { ...item, id: item.id ?? ids.next("item") };
    const { content, role } = item;
    const text = typeof content === "string" ? [{ type: "input_text" as const, text: content }] : content;
    return {
      type: "message",
      id: item.id ?? ids.next("msg"),
      status: "completed",
      role,
      content: role === "assistant" ? text.map(asOutput) : text,
    };
  });
}

function asOutput(part: { type: string; text?: string }) {
  return part.type === "refusal" ? part : { type: "output_text", text: part.text, annotations: [] };
}

/**
 * Returns the error for a missing previous response. Its status is 400 as at OpenAI, because clients look for a
 * BadRequestError with this code.
 */
function previousNotFound(id: string, missing: string): ApiError {
  const why = id === missing ? "" : `, because ${shown(missing)}, which it continues, is not stored any more`;
  const message = `Previous response with id ${
    shown(id)
  } not found${why}. Send all earlier items in "input".`;
  return new ApiError(400, "previous_response_not_found", message, { param: "previous_response_id" });
}

function itemNotFound(id: string, at: number): ApiError {
  const message =
    `Item with id ${shown(id)} not found. Items of responses with "store": false are not stored; ` +
    "send the item itself.";
  return new ApiError(404, "item_not_found", message, { param: `input[${at}].id` });
}

function tooLong(what: string): ApiError {
  const message = `The stored conversation ${what}; begin a new one`;
  return new ApiError(400, "invalid_value", message, { param: "previous_response_id" });
}

function shown(id: string): string {
  return `'${id.slice(0, 100)}'`;
}
