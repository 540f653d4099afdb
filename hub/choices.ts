import { isTowerName, towerName } from "../engine/models/folder.ts";
import { PullError } from "./errors.ts";
import { localName, quote } from "./names.ts";
import type { RemoteFile } from "./repository.ts";

/** A download into one file: a whole file of the hub, or a part that belongs at `offset`. */
export interface RemotePiece extends RemoteFile {
  /** Name of the piece's local file. */
  readonly file: string;
  /** Offset of the piece in the local file; undefined after a piece of unknown size. */
  readonly offset: number;
}

/** One model of a repository, in one quantization. */
export interface Choice {
  /** The local model name: the file's name without the ending and shard number. */
  readonly name: string;
  /** Quantization in capitals, for example "Q4_K_M"; empty if the name has none. */
  readonly quantisation: string;
  /** Downloads for the model, in the order of its files and their parts; then its vision tower, if there is one. */
  readonly pieces: readonly RemotePiece[];
  /** Bytes of all pieces; undefined if the hub does not state them. */
  readonly bytes: number | undefined;
  /** Description of missing files on the hub; empty for a complete model. */
  readonly missing: string;
}

const SHARD = /-(\d{5})-of-(\d{5})(?=\.gguf$)/;
/** Name patterns of files that are split into parts for `cat`. */
const NUMBERED_PART = /\.gguf\.part(\d{1,3})of(\d{1,3})$/;
const LETTERED_PART = /\.gguf-split-([a-z])$/;
/** Path pattern of quantizer statistics, which accompany models but are not models. */
const NO_MODEL = /(^|\/)imatrix[^/]*$|[.-]imatrix\.gguf$/i;
const QUANTISATION =
  /(?:^|[-._])((?:UD-)?(?:I?Q\d(?:_[A-Z0-9]+)*|TQ\d_\d|BF16|FP?16|FP?32|MXFP4(?:_MOE)?|NVFP4))$/i;

/** Recommended quantizations, best first. */
const PREFERRED = [
  "Q4_K_M",
  "MXFP4",
  "Q4_K_S",
  "UD-Q4_K_XL",
  "Q5_K_M",
  "Q4_0",
  "IQ4_XS",
  "Q6_K",
  "Q8_0",
  "IQ4_NL",
];

/** Quantizations of a vision tower, best first. 8 bits are nearly exact and take half the bytes of 16. */
const PREFERRED_TOWERS = ["Q8_0", "F16", "FP16", "BF16", "F32", "FP32"];

interface Place {
  /** Path of the whole model, without shard and part numbers. */
  readonly model: string;
  readonly file: string;
  readonly shard: number;
  readonly shards: number;
  readonly part: number;
  /** Number of parts; undefined if the name does not say. */
  readonly parts: number | undefined;
}

/** Returns the models in a repository, by the paths of its files. */
export function findChoices(files: readonly RemoteFile[]): Choice[] {
  const placed = files.flatMap((remote) => {
    const place = placeOf(remote.path);
    return place && !NO_MODEL.test(place.model) ? [{ remote, ...place }] : [];
  });
  const [towers, ofModels] = [true, false].map((tower) =>
    placed.filter(({ model }) => isTower(model) === tower)
  );
  const models = Map.groupBy(ofModels, ({ model, shards }) => `${model}\n${shards}`);
  return [...models.values()].map((pieces) => {
    pieces.sort((a, b) => a.shard - b.shard || a.part - b.part);
    const stem = pieces[0].model.replace(/^.*\//, "").replace(/\.gguf$/i, "");
    const tower = towerFor(pieces[0].model, towers);
    return {
      name: stem,
      quantisation: quantisationOf(pieces[0].model),
      pieces: [
        ...withOffsets(pieces),
        ...(tower ? [{ ...tower.remote, file: towerName(stem), offset: 0 }] : []),
      ],
      bytes: sizeOf([...pieces, ...(tower ? [tower] : [])].map(({ remote }) => remote)),
      missing: missingOf(pieces),
    };
  }).sort((a, b) => (a.bytes ?? 0) - (b.bytes ?? 0) || (a.name < b.name ? -1 : 1));
}

/** Returns whether a path, on the hub or local, has the name of a vision tower. */
export function isTower(path: string): boolean {
  return isTowerName(path.slice(path.lastIndexOf("/") + 1));
}

/**
 * Returns a model's vision tower: the best in its folder, or else in the repository's top folder; undefined without
 * one.
 */
function towerFor<Tower extends Place>(model: string, towers: readonly Tower[]): Tower | undefined {
  const folderOf = (path: string) => path.slice(0, path.lastIndexOf("/") + 1);
  const whole = towers.filter(({ shards, parts }) => shards === 1 && parts === 1);
  const beside = whole.filter(({ file }) => folderOf(file) === folderOf(model));
  const found = beside.length > 0 ? beside : whole.filter(({ file }) => folderOf(file) === "");
  const rank = ({ file }: Tower) => {
    const at = PREFERRED_TOWERS.indexOf(quantisationOf(file));
    return at < 0 ? PREFERRED_TOWERS.length : at;
  };
  return found.toSorted((a, b) => rank(a) - rank(b) || (a.file < b.file ? -1 : 1))[0];
}

/** Returns the quantization in the file's name, or else in the folder's name. */
function quantisationOf(model: string): string {
  const names = model.replace(/\.gguf$/i, "").split("/").slice(-2).reverse();
  return names.map((name) => QUANTISATION.exec(name)?.[1].toUpperCase()).find(Boolean) ?? "";
}

function placeOf(path: string): Place | undefined {
  const numbered = NUMBERED_PART.exec(path);
  const lettered = LETTERED_PART.exec(path);
  const cut = numbered ?? lettered;
  const file = cut ? `${path.slice(0, cut.index)}.gguf` : path;
  if (!/\.gguf$/.test(file)) return undefined;
  const shard = SHARD.exec(file);
  return {
    file,
    model: file.replace(SHARD, ""),
    shard: Number(shard?.[1] ?? 1),
    shards: Number(shard?.[2] ?? 1),
    part: numbered ? Number(numbered[1]) : lettered ? lettered[1].charCodeAt(0) - 96 : 1,
    parts: numbered ? Number(numbered[2]) : lettered ? undefined : 1,
  };
}

function withOffsets(pieces: readonly (Place & { readonly remote: RemoteFile })[]): RemotePiece[] {
  const ends = new Map<string, number>();
  return pieces.map(({ remote, file }) => {
    const name = file.slice(file.lastIndexOf("/") + 1);
    const offset = ends.get(name) ?? 0;
    ends.set(name, offset + (remote.size ?? 0));
    return { ...remote, file: name, offset };
  });
}

function sizeOf(files: readonly RemoteFile[]): number | undefined {
  return files.reduce<number | undefined>(
    (sum, { size }) => sum === undefined || size === undefined ? undefined : sum + size,
    0,
  );
}

function missingOf(pieces: readonly (Place & { readonly remote: RemoteFile })[]): string {
  const { shards } = pieces[0];
  const found = Map.groupBy(pieces, ({ shard }) => shard);
  if (found.size !== shards) return `${shards - found.size} of ${shards} files`;
  for (const ofFile of found.values()) {
    const parts = ofFile[0].parts ?? ofFile.length;
    if (ofFile.length !== parts || ofFile.some(({ part }, i) => part !== i + 1)) {
      return `${Math.max(1, parts - ofFile.length)} of ${parts} parts`;
    }
    if (parts > 1 && ofFile.some(({ remote }) => remote.size === undefined)) return "the sizes of the parts";
  }
  return "";
}

/**
 * Returns the choice that `wanted` names: a path, a file's name, a model's name or a quantization. Throws
 * PullError.
 */
export function chooseNamed(choices: readonly Choice[], wanted: string, what: string): Choice {
  const lower = wanted.toLowerCase();
  const tests: ((choice: Choice) => boolean)[] = [
    ({ pieces }) => pieces.some(({ path }) => path === wanted && !isTower(path)),
    ({ pieces, name }) => name === wanted || pieces.some(({ file }) => file === wanted),
    ({ quantisation }) => quantisation.toLowerCase() === lower,
    ({ quantisation }) => quantisation.toLowerCase() === `ud-${lower}`,
    ({ name }) => name.toLowerCase() === lower,
  ];
  for (const test of tests) {
    const found = choices.filter(test);
    if (found.length === 1) return found[0];
    if (found.length > 1) {
      const paths = found.map(({ pieces }) => quote(pieces[0].path)).join(", ");
      throw new PullError(
        "PULL_CHOICE",
        `${what} has ${found.length} files for ${quote(wanted)}: name one of ${paths}`,
      );
    }
  }
  throw new PullError(
    "PULL_NOT_FOUND",
    `${what} has no file or quantisation ${quote(wanted)}; it has ${labels(choices)}`,
  );
}

/** Returns the labels of the choices for a message. */
export function labels(choices: readonly Choice[]): string {
  const most = 30;
  const shown = choices.slice(0, most).map((choice) => quote(labelOf(choice, choices)));
  return shown.join(", ") + (choices.length > most ? ` and ${choices.length - most} more` : "");
}

/** Returns the shortest label that identifies a choice. */
export function labelOf(choice: Choice, choices: readonly Choice[]): string {
  const { quantisation, pieces } = choice;
  const alike = choices.filter((other) => other.quantisation === quantisation);
  return quantisation !== "" && alike.length === 1 ? quantisation : pieces[0].path;
}

/** Returns the choice to recommend: the preferred one that `fits`, or else the smallest. */
export function recommend(choices: readonly Choice[], fits: (choice: Choice) => boolean): Choice | undefined {
  const whole = choices.filter(({ missing }) => missing === "");
  const fitting = whole.filter(fits);
  const rank = ({ quantisation }: Choice) => {
    const at = PREFERRED.indexOf(quantisation);
    return at < 0 ? PREFERRED.length : at;
  };
  return fitting.toSorted((a, b) => rank(a) - rank(b))[0] ?? whole[0];
}

/** Returns the model at a URL. The URL of one shard stands for all shards beside it. */
export function choiceOfUrl(url: URL, sha256: string | undefined, as: string | undefined): Choice {
  const given = decodeName(url);
  const shard = SHARD.exec(given);
  const count = Number(shard?.[2] ?? 1);
  if (shard && (count < 1 || Number(shard[1]) > count || count > 1000)) {
    throw new PullError(
      "PULL_SOURCE",
      `${quote(given)} is not a shard of a model: its numbers contradict each other`,
    );
  }
  if (shard && sha256 !== undefined) {
    throw new PullError(
      "PULL_SOURCE",
      `--sha256 is for a single file, but ${quote(given)} is one of ${count}`,
    );
  }
  const name = as ?? localName(given).replace(SHARD, "").slice(0, -".gguf".length);
  const pieces = Array.from({ length: count }, (_, i): RemotePiece => {
    const suffix = shard ? `-${String(i + 1).padStart(5, "0")}-of-${shard[2]}` : "";
    const file = `${name}${suffix}.gguf`;
    const address = new URL(url);
    if (shard) address.pathname = url.pathname.replace(SHARD, suffix);
    return { path: given.replace(SHARD, suffix), url: address, size: undefined, sha256, file, offset: 0 };
  });
  const quantisation = QUANTISATION.exec(name)?.[1].toUpperCase() ?? "";
  return { name, quantisation, pieces, bytes: undefined, missing: "" };
}

function decodeName(url: URL): string {
  const last = url.pathname.slice(url.pathname.lastIndexOf("/") + 1);
  try {
    return decodeURIComponent(last);
  } catch {
    return last;
  }
}
