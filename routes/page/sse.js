// @ts-check
/// <reference lib="dom" />

/**
 * @typedef {{ event: string, data: string }} ServerSentEvent
 */

/**
 * Yields the server-sent events of an answer in order. Skips a last event without an empty line, because it
 * may be cut. Throws read errors; cancels the stream when the reader stops early.
 * @param {ReadableStream<Uint8Array<ArrayBuffer>>} stream
 * @returns {AsyncGenerator<ServerSentEvent>}
 */
export async function* readEvents(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let event = "";
  /** @type {string[]} */
  let data = [];
  try {
    for (let next = await reader.read(); !next.done; next = await reader.read()) {
      const text = rest + next.value;
      // A carriage return at the end may be the first half of CRLF.
      const whole = text.endsWith("\r") ? text.slice(0, -1) : text;
      const lines = whole.split(/\r\n|\n|\r/);
      rest = lines.pop() + text.slice(whole.length);
      for (const line of lines) {
        if (line === "") {
          if (data.length > 0) yield { event: event || "message", data: data.join("\n") };
          event = "";
          data = [];
        } else if (!line.startsWith(":")) {
          const colon = line.includes(":") ? line.indexOf(":") : line.length;
          const value = line.slice(colon + 1).replace(/^ /, "");
          if (line.slice(0, colon) === "data") data.push(value);
          if (line.slice(0, colon) === "event") event = value;
        }
      }
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}
