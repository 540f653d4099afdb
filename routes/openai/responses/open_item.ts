import type { ChatPart } from "../../../engine/mod.ts";
import type { ItemStatus, OutputItem, ResponseLogprobs } from "./answer.ts";

/** An event of a response without its sequence number. */
export interface Said {
  readonly type: string;
  readonly [field: string]: unknown;
}

/** An output item that is being written. Its events lack the sequence number and the item's position. */
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

/** Creates the ids of a response's items from the response's id, so that an item's id identifies its response. */
export class ItemIds {
  #count = 0;

  constructor(private readonly responseId: string) {}

  next(prefix: string): string {
    const count = (this.#count++).toString(16).padStart(4, "0");
    return `${prefix}_${this.responseId.slice("resp_".length)}${count}`;
  }
}

/** Returns the id of the response with the item; undefined if the id is not from this server. */
export function responseOf(itemId: string): string | undefined {
  const [, id] = /^[a-z]+_([0-9a-f]{32})[0-9a-f]{4,}$/.exec(itemId) ?? [];
  return id === undefined ? undefined : `resp_${id}`;
}
