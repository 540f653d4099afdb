import { towerName } from "../engine/models/folder.ts";
import { type Choice, choiceOfUrl, chooseNamed, findChoices, isTower, labels, recommend } from "./choices.ts";
import { PullError } from "./errors.ts";
import { judge, machineMemory, type Verdict } from "./header.ts";
import type { HubClient } from "./http.ts";
import { checkModelName, localName, quote } from "./names.ts";
import type { RetryPolicy } from "./retry_policy.ts";
import { listRepository } from "./repository.ts";
import { type Source, sourceText } from "./source.ts";
import { Transfer } from "./transfer.ts";
import { Unfinished } from "./unfinished.ts";

/** The models that a source has, before one is chosen. */
export interface Found {
  /** Models of the source, smallest first. */
  readonly choices: readonly Choice[];
  /** Commit of the hub's repository. */
  readonly commit: string | undefined;
}

/** The source to search, and the model to find there. */
export interface Search {
  readonly source: Source;
  /** Local name to give the model. */
  readonly as: string | undefined;
  readonly sha256: string | undefined;
}

/** Returns a source's models: all of a repository, or only the named one. Throws PullError. */
export async function find(
  { source, as, sha256 }: Search,
  client: HubClient,
  retries: RetryPolicy,
  signal?: AbortSignal,
): Promise<Found> {
  const name = as === undefined ? undefined : checkModelName(as);
  if (source.kind === "url") return { choices: [choiceOfUrl(source.url, sha256, name)], commit: undefined };
  const { commit, files } = await listRepository(client, source, retries, signal);
  const what = sourceText({ ...source, wanted: undefined });
  const choices = findChoices(files);
  if (choices.length === 0) {
    throw new PullError(
      "PULL_NOT_FOUND",
      `${what} has no GGUF files; look for a repository of the same model whose name ends in GGUF, or convert its ` +
        `checkpoint (deno task convert)`,
    );
  }
  const found = source.wanted === undefined ? choices : [chooseNamed(choices, source.wanted, what)];
  if (sha256 === undefined || found.length > 1) return { choices: found, commit };
  return { choices: [promise(found[0], sha256)], commit };
}

/** Returns a choice with a hash that another source gave. */
function promise(choice: Choice, sha256: string): Choice {
  const [piece, ...others] = choice.pieces;
  const more = others.filter(({ file }) => !isTower(file)).length;
  if (more > 0) {
    throw new PullError(
      "PULL_SOURCE",
      `--sha256 is for a single file, but ${quote(choice.name)} has ${more + 1} files: omit --sha256`,
    );
  }
  if (piece.sha256 !== undefined && piece.sha256 !== sha256) {
    throw new PullError(
      "PULL_CHECKSUM",
      `The hub's SHA-256 of ${
        quote(piece.path)
      } is ${piece.sha256}, and ${sha256} was given: it is another file`,
    );
  }
  return { ...choice, pieces: [{ ...piece, sha256 }, ...others] };
}

/** Returns the choice, renamed if wanted. Throws PullError for an incomplete model or an invalid name. */
export function checkChoice(choice: Choice, as: string | undefined): Choice {
  if (choice.missing !== "") {
    throw new PullError(
      "PULL_NOT_FOUND",
      `${quote(choice.name)} is incomplete on the hub: ${choice.missing} missing`,
    );
  }
  const renamed = as === undefined ? choice : rename(choice, checkModelName(as));
  checkNames(renamed);
  return renamed;
}

function rename(choice: Choice, name: string): Choice {
  const pieces = choice.pieces.map((piece) => ({
    ...piece,
    file: isTower(piece.file)
      ? towerName(name)
      : `${name}${/-\d{5}-of-\d{5}(?=\.gguf$)/.exec(piece.file)?.[0] ?? ""}.gguf`,
  }));
  return { ...choice, name, pieces };
}

/** Throws PullError for an invalid local name. A vision tower's name needs no check: it is derived from its model's. */
function checkNames({ pieces }: Choice): void {
  for (const { file } of pieces) if (!isTower(file)) localName(file);
}

/** A model to choose, and whether it would run here. */
export interface OfferedChoice {
  readonly choice: Choice;
  /** Bytes of memory that the model needs, estimated if its header was not read; undefined if its size is unknown. */
  readonly memory: number | undefined;
  readonly estimated: boolean;
  /** Whether the model fits into memory; undefined if unknown. */
  readonly fits: boolean | undefined;
  /** The reason that compy cannot run the model; empty if it can or if the header was not read. */
  readonly refusal: string;
}

/** A source's models, and their memory needs here. */
export interface Offer {
  /** The source as the user requested it. */
  readonly source: string;
  readonly choices: readonly OfferedChoice[];
  /** The default choice; undefined if no model is complete. */
  readonly recommended: OfferedChoice | undefined;
  /** Free bytes of memory; undefined if unknown. */
  readonly free: number | undefined;
}

/**
 * Returns the memory needs of all choices, from one choice's header. `read` is that choice, if its bytes are new in
 * `models`.
 */
export async function describeChoices(
  source: Source,
  { choices }: Found,
  { models, client, retries, signal, free = machineMemory() }: {
    readonly models: string;
    readonly client: HubClient;
    readonly retries: RetryPolicy;
    readonly signal?: AbortSignal;
    readonly free?: number;
  },
): Promise<{ offer: Offer; read: Choice | undefined }> {
  const fitsIn = (bytes: number | undefined) =>
    free === undefined || bytes === undefined ? undefined : bytes <= free;
  const read = recommend(choices, ({ bytes }) => fitsIn(bytes) ?? true);
  const { verdict, fresh } = await peek(read, { models, client, retries, source, signal });
  const rest = verdict && "needs" in verdict ? verdict.needs.rest : undefined;
  const offered = choices.map((choice): OfferedChoice => {
    const exact = choice === read;
    const memory = exact && verdict && "needs" in verdict
      ? verdict.needs.weights + verdict.needs.rest
      : choice.bytes === undefined || rest === undefined
      ? undefined
      : choice.bytes + rest;
    const refusal = exact && verdict && "refusal" in verdict ? verdict.refusal : "";
    return { choice, memory, estimated: !exact, fits: fitsIn(memory), refusal };
  });
  const best = recommend(choices, (choice) => offered.find((other) => other.choice === choice)!.fits ?? true);
  const recommended = offered.find(({ choice }) => choice === best);
  const offer = { source: sourceText(source), choices: offered, recommended, free };
  return { offer, read: fresh ? read : undefined };
}

/**
 * Reads the header of a choice. Returns no verdict if another process downloads the choice. `fresh`: no bytes of the
 * choice were on this machine before.
 */
async function peek(
  choice: Choice | undefined,
  { models, client, retries, source, signal }: {
    readonly models: string;
    readonly client: HubClient;
    readonly retries: RetryPolicy;
    readonly source: Source;
    readonly signal?: AbortSignal;
  },
): Promise<{ verdict: Verdict | undefined; fresh: boolean }> {
  if (!choice) return { verdict: undefined, fresh: false };
  checkNames(choice);
  let unfinished: Unfinished;
  try {
    unfinished = await Unfinished.open(models, choice.name);
  } catch (error) {
    if (error instanceof PullError && error.code === "PULL_BUSY") return { verdict: undefined, fresh: false };
    throw error;
  }
  let fresh = false;
  try {
    const { kept } = await unfinished.begin(sourceText(source), choice.pieces);
    fresh = kept === 0;
    using transfer = new Transfer({ client, retries, signal });
    const verdict = await judge(transfer, unfinished.pieces);
    await unfinished.save();
    return { verdict, fresh };
  } catch (error) {
    if (fresh) await unfinished.remove();
    throw error;
  } finally {
    unfinished.close();
  }
}

/** Throws PullError with a list of the choices. */
export function refuseOpenChoice(source: Source, { choices }: Found): never {
  const text = sourceText(source);
  throw new PullError(
    "PULL_CHOICE",
    `${text} has ${choices.length} models: name one of ${labels(choices)}, as in ${text}:${
      choices[0].quantisation || choices[0].pieces[0].path
    }; --dry-run shows what each needs`,
  );
}
