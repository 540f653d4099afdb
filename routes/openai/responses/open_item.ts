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

export function idOf(prefix: string): string {
  return `${prefix}_${crypto.randomUUID().replaceAll("-", "")}`;
}
