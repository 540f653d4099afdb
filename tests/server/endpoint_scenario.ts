import { endpointCall, open, readAnswer } from "./endpoint_calls.ts";
import { type LiveServer, withLiveServer } from "../../testing/live_server.ts";
import { Random } from "../../testing/random.ts";

/**
 * Disconnects, many concurrent streams, and SIGTERM, over all endpoints (`deno task storms --only disconnects,streams,sigterms`).
 * Every complete answer must equal the answer alone, and all resources must be freed. The suite runs a few calls
 * (endpoint_campaign_test.ts).
 */

/** Number of different calls, over all endpoints. */
const CALLS = 24;
const AT_ONCE = 32;

/** Number of disconnecting requests per request that is read to its end. */
const READ_EVERY = 8;

/** The unstreamed answer of each call alone. */
export async function truth(url: string): Promise<string[]> {
  const answers = [];
  for (let i = 0; i < CALLS; i++) {
    const call = endpointCall(i);
    const answer = await readAnswer(call, await open(url, call, false));
    if (answer === "") {
      throw new Error(`${call.path} answered with nothing: what should others be compared with?`);
    }
    answers.push(answer);
  }
  return answers;
}

/** Reads a call to its end; throws if the answer differs from that alone. */
async function readRight(url: string, expected: readonly string[], number: number, stream: boolean) {
  const call = endpointCall(number % CALLS);
  const text = await readAnswer(call, await open(url, call, stream));
  if (text === expected[number % CALLS]) return;
  throw new Error(`${call.path} answered ${JSON.stringify(text)}, alone ${expected[number % CALLS]}`);
}

/** Calls with a disconnect at a random moment; every eighth is read to its end. */
export async function disconnect(
  server: LiveServer,
  expected: readonly string[],
  count: number,
  seed: number,
) {
  const random = new Random(seed);
  const before = await server.descriptors();
  const leave = async (number: number, stream: boolean, afterMs: number) => {
    const signal = AbortSignal.timeout(afterMs);
    try {
      const call = endpointCall(number % CALLS);
      await readAnswer(call, await open(server.url, call, stream, signal));
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  };
  for (let done = 0; done < count; done += AT_ONCE) {
    const wave = Array.from({ length: Math.min(AT_ONCE, count - done) }, (_, i) => {
      const stream = random.below(2) === 0;
      if (i % READ_EVERY === 0) return readRight(server.url, expected, done + i, stream);
      return leave(done + i, stream, random.below(400));
    });
    await Promise.all(wave);
  }
  await server.idle();
  const after = await server.descriptors();
  if (after > before + AT_ONCE) throw new Error(`${after} descriptors are open, ${before} were before`);
}

/** Concurrent streams from all endpoints. */
export async function streamAll(server: LiveServer, expected: readonly string[], count: number) {
  await Promise.all(Array.from({ length: count }, (_, i) => readRight(server.url, expected, i, true)));
  await server.idle();
}

/** Starts a server, opens streams and stops it at a random moment. All started streams must be complete. */
export async function stopInMidStream(args: readonly string[], expected: readonly string[], seed: number) {
  const random = new Random(seed);
  let reading: Promise<void>[] = [];
  await withLiveServer(args, async ({ url }) => {
    const calls = Array.from({ length: 32 }, (_, i) => i * 7 + seed)
      .filter((number) => endpointCall(number % CALLS).add);
    const responses = await Promise.all(calls.map((number) => open(url, endpointCall(number % CALLS), true)));
    reading = responses.map(async (response, i) => {
      const call = endpointCall(calls[i] % CALLS);
      const text = await readAnswer(call, response);
      if (text !== expected[calls[i] % CALLS]) throw new Error(`${call.path}: a stream was cut: ${text}`);
    });
    await new Promise((resolve) => setTimeout(resolve, random.below(200)));
    // withLiveServer now sends SIGTERM while the streams are read.
  });
  await Promise.all(reading);
}
