// @ts-check

/*
 * Versions of a conversation. An edited message and a second answer begin a new version from there on; the earlier one is
 * kept. The conversation's own messages are those of the shown versions.
 */

/**
 * Messages from one index on, with the versions within them. `forks` maps the index of the first message that differs
 * to all versions, in order of creation; the shown version is null there.
 * @typedef {{ messages: Message[], forks?: Forks }} Branch
 * @typedef {Record<number, (Branch | null)[]>} Forks
 * @typedef {import("./conversation.js").Message} Message
 */

/**
 * Puts the messages from an index on aside as an earlier version, so that a new one can be written. Drops them if they
 * say nothing, such as an answer that failed before its first word.
 * @param {Branch} conversation
 * @param {number} index
 */
export function beginVersion(conversation, index) {
  const tail = takeTail(conversation, index);
  if (!tail.forks && !tail.messages.some(saysSomething)) return;
  const forks = conversation.forks ??= {};
  const versions = forks[index] ?? [null];
  forks[index] = [...versions.map((version) => version ?? tail), null];
}

/**
 * Shows another version of the messages from an index on.
 * @param {Branch} conversation
 * @param {number} index
 * @param {number} number of the version, from 0
 */
export function showVersion(conversation, index, number) {
  const versions = conversation.forks?.[index];
  const wanted = versions?.[number];
  if (!versions || !wanted) return;
  const tail = takeTail(conversation, index);
  conversation.messages.push(...wanted.messages);
  const changed = versions.map((version) => version === wanted ? null : version ?? tail);
  conversation.forks = { ...conversation.forks, [index]: changed, ...wanted.forks };
}

/**
 * Returns the number of the shown version of a message, from 0, and how many there are.
 * @param {Branch} conversation
 * @param {number} index of the message
 */
export function versionsAt({ forks }, index) {
  const versions = forks?.[index] ?? [null];
  return { shown: versions.indexOf(null), count: versions.length };
}

/**
 * Yields the messages of all versions.
 * @param {Branch} branch
 * @returns {Generator<Message>}
 */
export function* everyMessage({ messages, forks = {} }) {
  yield* messages;
  for (const version of Object.values(forks).flat()) if (version) yield* everyMessage(version);
}

/**
 * Returns false for an answer that failed before its first word: it is not part of the conversation.
 * @param {Message} message
 */
export function saysSomething(message) {
  return message.role !== "assistant" || message.content !== "" || message.calls.length > 0;
}

/**
 * Removes the messages from an index on, with the versions within them.
 * @param {Branch} conversation
 * @param {number} index
 * @returns {Branch}
 */
function takeTail(conversation, index) {
  const messages = conversation.messages.splice(index);
  const [before, within] = [false, true].map((later) =>
    Object.fromEntries(
      Object.entries(conversation.forks ?? {}).filter(([at]) => Number(at) > index === later),
    )
  );
  conversation.forks = before;
  return Object.keys(within).length === 0 ? { messages } : { messages, forks: within };
}
