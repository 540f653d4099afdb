import { type Choice, labelOf, type Offer, type OfferedChoice, PullError } from "../../hub/mod.ts";
import { sizeInWords } from "../shared/sizes.ts";
import { escaped } from "../shared/escape.ts";
import { err } from "../shared/terminal.ts";

/** Returns a text table of a source's models. */
export function offerAsText({ source, choices, recommended, free }: Offer): string {
  const all = choices.map(({ choice }) => choice);
  const rows = choices.map((offered) => {
    const { choice } = offered;
    const mark = offered === recommended ? "*" : " ";
    const bytes = choice.bytes === undefined ? "?" : sizeInWords(choice.bytes);
    return [mark, labelOf(choice, all), bytes, filesOf(choice), memoryOf(offered), verdictOf(offered)];
  });
  const table = [["", "choice", "download", "files", "memory", ""], ...rows];
  const widths = table[0].map((_, column) => Math.max(...table.map((row) => row[column].length)));
  const lines = table.map((row) => row.map((cell, i) => cell.padEnd(widths[i])).join("  ").trimEnd());
  const known = free === undefined ? "" : `; ${sizeInWords(free)} are free here`;
  return [
    source,
    "",
    ...lines,
    "",
    `Memory: with one sequence, of at most 4096 tokens (~: about)${known}.`,
    "",
  ].map(escaped).join("\n");
}

function filesOf({ pieces }: Choice): string {
  return String(pieces.length);
}

function memoryOf({ memory, estimated }: OfferedChoice): string {
  return memory === undefined ? "?" : `${estimated ? "~" : ""}${sizeInWords(memory)}`;
}

function verdictOf({ choice, fits, refusal }: OfferedChoice): string {
  if (choice.missing !== "") return `incomplete on the hub: ${choice.missing} missing`;
  if (refusal !== "") return `compy cannot run it: ${refusal}`;
  return fits === undefined ? "" : fits ? "fits" : "does not fit";
}

export function offerAsJson({ source, choices, recommended, free }: Offer) {
  const all = choices.map(({ choice }) => choice);
  return {
    source,
    memory_free: free,
    recommended: recommended && labelOf(recommended.choice, all),
    choices: choices.map(({ choice, memory, estimated, fits, refusal }) => ({
      choice: labelOf(choice, all),
      name: choice.name,
      quantisation: choice.quantisation,
      bytes: choice.bytes,
      files: choice.pieces.map(({ path, size, sha256 }) => ({ path, bytes: size, sha256 })),
      missing: choice.missing || undefined,
      memory,
      estimated,
      fits,
      refusal: refusal || undefined,
    })),
  };
}

/** The terminal on which the user chooses. */
interface Asker {
  /** Returns a line without its line end; undefined at the end of input. */
  readonly readLine: () => Promise<string | undefined>;
  readonly write: (text: string) => void;
}

/** Shows the choices and returns the chosen one. An empty line takes the recommended one. */
export async function askWhich(
  offer: Offer,
  signal: AbortSignal,
  { readLine, write }: Asker = { readLine: terminalLine, write: err },
): Promise<Choice> {
  for (const line of offerAsText(offer).split("\n")) write(`${line}\n`);
  const all = offer.choices.map(({ choice }) => choice);
  const advised = offer.recommended && labelOf(offer.recommended.choice, all);
  while (true) {
    write(advised === undefined ? "Which one? " : `Which one? (Enter: ${advised}) `);
    const line = await unlessAborted(readLine(), signal);
    if (line === undefined) throw new PullError("PULL_STOPPED", "Stopped; nothing was downloaded");
    const wanted = (line || (advised ?? "")).toLowerCase();
    const found = all.find((choice) =>
      [labelOf(choice, all), choice.name].some((name) => name.toLowerCase() === wanted)
    );
    if (found) return found;
    write(`There is no "${line}" among them.\n`);
  }
}

async function terminalLine(): Promise<string | undefined> {
  const bytes = new Uint8Array(4096);
  const count = await Deno.stdin.read(bytes);
  return count === null ? undefined : new TextDecoder().decode(bytes.subarray(0, count)).trim();
}

async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>();
  const stop = () => reject(signal.reason);
  signal.addEventListener("abort", stop, { once: true });
  try {
    return await Promise.race([work, promise]);
  } finally {
    signal.removeEventListener("abort", stop);
  }
}
