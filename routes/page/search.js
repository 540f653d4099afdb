// @ts-check
import { everyMessage } from "./versions.js";

/**
 * @typedef {import("./conversation.js").Conversation} Conversation
 * @typedef {{ before: string, match: string, after: string }} Excerpt
 */

/** Characters of an excerpt before and after the match. */
const [BEFORE, AFTER] = [24, 60];

/**
 * Returns the conversations that contain every word of a query, in the title or in the messages of any version. Each
 * has an excerpt if its title does not contain all words.
 * @param {readonly Conversation[]} conversations
 * @param {string} query
 * @returns {{ conversation: Conversation, excerpt?: Excerpt }[]}
 */
export function search(conversations, query) {
  const words = query.toLowerCase().split(/\s+/).filter((word) => word !== "");
  return conversations.flatMap((conversation) => {
    const title = conversation.title.toLowerCase();
    /** @type {Excerpt | undefined} */
    let excerpt;
    for (const word of words) {
      if (title.includes(word)) continue;
      const found = excerptOf(conversation, word);
      if (!found) return [];
      excerpt ??= found;
    }
    return [{ conversation, excerpt }];
  });
}

/**
 * @param {Conversation} conversation
 * @param {string} word in small letters
 * @returns {Excerpt | undefined}
 */
function excerptOf(conversation, word) {
  for (const { content } of everyMessage(conversation)) {
    const at = content.toLowerCase().indexOf(word);
    if (at < 0) continue;
    const end = at + word.length;
    return {
      before: `${at > BEFORE ? "…" : ""}${oneLine(content.slice(Math.max(at - BEFORE, 0), at))}`,
      match: content.slice(at, end),
      after: oneLine(content.slice(end, end + AFTER)),
    };
  }
  return undefined;
}

/** @param {string} text */
function oneLine(text) {
  return text.replace(/\s+/g, " ");
}
