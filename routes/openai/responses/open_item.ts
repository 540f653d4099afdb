import type { ChatPart } from "../../../engine/mod.ts";
import type { ItemStatus, OutputItem, ResponseLogprobs } from "./answer.ts";

/** An event without its sequence number. */
export interface Said {
  readonly type: string;
  readonly [field: string]: unknown;
}

/** An item that is being written. Its events lack the sequence number and the item's position. */
export interface OpenItem {
  readonly id: string;
  takes(part: ChatPart): boolean;
  /** Returns the new item, before it has any content. */
  begun(): OutputItem;
  begin(): Said[];
  add(part: ChatPart, logprobs: ResponseLogprobs): Said[];
  end(): Said[];
  item(status: ItemStatus): OutputItem;
}

/** Makes the ids of a response's items from the response's id, so that an item's id says which response contains it. */
export class ItemIds {
  #count = 0;

  constructor(private readonly responseId: string) {}

  next(prefix: string): string {
    const count = (this.#count++).toString(16).padStart(4, "0");
    return `${prefix}_${this.responseId.slice("resp_".length)}${count}`;
  }
}

/** Returns the id of the response that has the item, or undefined if no item here has such an id. */
export function responseOf(itemId: string): string | undefined {
  const [, id] = /^[a-z]+_([0-9a-f]{32})[0-9a-f]{4,}$/.exec(itemId) ?? [];
  return id === undefined ? undefined : `resp_${id}`;
}
