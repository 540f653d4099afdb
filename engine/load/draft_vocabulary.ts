import { EngineError, type Wording } from "../api/errors.ts";
import { finish, type Paced, STEPS_PER_OFFER, withPauses } from "../pacing/pauses.ts";
import type { Tokenizer } from "../tokenizer/types.ts";

/** Maximum difference of the vocabularies' sizes: some files pad their vocabulary to a round number. */
const MOST_BEYOND = 1024;

/** Returns the number of tokens that both vocabularies share. Throws EngineError if a shared token differs. */
export async function commonVocabulary(
  path: string,
  drafting: Tokenizer,
  drafted: Tokenizer,
): Promise<number> {
  const common = Math.min(drafting.vocabSize, drafted.vocabSize);
  if (Math.max(drafting.vocabSize, drafted.vocabSize) - common > MOST_BEYOND) {
    throw cannotDraft(
      path,
      `its vocabulary has ${drafting.vocabSize} tokens, the model's has ${drafted.vocabSize}`,
    );
  }
  const token = await withPauses(() => finish(firstDifference(common, drafting, drafted)));
  if (token === undefined) return common;
  const [its, ours] = [drafting, drafted].map((tokenizer) => spelled(token, tokenizer));
  throw cannotDraft(path, `token ${token} is ${its} in its vocabulary, and ${ours} in the model's`);
}

/** Returns the first token below `common` that differs; undefined if all are the same. */
function* firstDifference(common: number, one: Tokenizer, other: Tokenizer): Paced<number | undefined> {
  for (let token = 0; token < common; token++) {
    if (!isSameToken(token, one, other)) return token;
    if (token % STEPS_PER_OFFER === STEPS_PER_OFFER - 1) yield;
  }
}

const SMALLER = "name a smaller model of the same family and version";

/** Returns the error for a file that cannot draft for the model. */
export function cannotDraft(path: string, reason: string, advice = SMALLER): EngineError {
  const wording: Wording = [`Cannot draft with ${path}: ${reason}; ${advice} (`, { draft: undefined }, ")"];
  return new EngineError("invalid_request", wording);
}

/** Returns whether a token has the same bytes and the same kind in both vocabularies. */
export function isSameToken(token: number, one: Tokenizer, other: Tokenizer): boolean {
  const [its, ours] = [one.bytes(token), other.bytes(token)];
  return one.isControl(token) === other.isControl(token) && its.length === ours.length &&
    its.every((byte, i) => byte === ours[i]);
}

function spelled(token: number, tokenizer: Tokenizer): string {
  return JSON.stringify(tokenizer.decode([token], { continuation: true, special: true }));
}
