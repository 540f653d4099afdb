/** The programs that compy is compared with on one machine (`deno task bench:peers`). */
import { basename, fromFileUrl, join, resolve } from "@std/path";
import { exists, installPeer, PEER, PEER_VERSION, type PeerBackend, peerGpu } from "../peer.ts";
import { ROOT, run, say, UsageError } from "../../bench/shell.ts";
import { runLlamaBench } from "./llama_bench.ts";
import type { PeerReport, Work } from "./report.ts";

export interface Peer {
  /** With its version, where that is known. */
  readonly name: string;
  /** Installs what is missing. */
  prepare(): Promise<void>;
  measure(work: Work): Promise<PeerReport>;
}

/** PyPI's packages, of one day. */
const OPENVINO_VERSION = "2026.4.1.0";
const OPENVINO_PACKAGES = [
  `openvino-genai==${OPENVINO_VERSION}`,
  `openvino-tokenizers==${OPENVINO_VERSION}`,
  "openvino==2026.4.1",
  "gguf==0.19.0",
  "numpy==2.4.6",
];

export const PEER_CHOICES = "llama.cpp, openvino or llama-bench=PATH";

/** What --peer names; `more` arguments only a program of the user's takes. Throws UsageError. */
export function peerOf(name: string, backend: PeerBackend, more: readonly string[], folder: string): Peer {
  const program = name.match(/^llama-bench=(.+)$/)?.[1];
  if (!program && more.length > 0) throw new UsageError("--peer-args is for --peer llama-bench=PATH only");
  if (backend === "webgpu" && name !== "llama.cpp") {
    throw new UsageError(`--backend webgpu is for --peer llama.cpp only (got --peer ${name})`);
  }
  if (program) return llamaBench(resolve(folder, program), more);
  if (name === "llama.cpp") return llamaCpp(backend);
  if (name === "openvino") return openvino();
  throw new UsageError(`--peer must be ${PEER_CHOICES} (got "${name}")`);
}

/** As npm's node-llama-cpp ships it, prebuilt. */
function llamaCpp(backend: PeerBackend): Peer {
  const gpu = backend === "webgpu" ? peerGpu() : false;
  return {
    name: `${PEER} ${PEER_VERSION}`,
    async prepare() {
      await installPeer(backend);
    },
    async measure(work) {
      const settings = JSON.stringify({ ...work, gpu });
      return lastLine(await run("node", [here("llama_cpp_speed.mjs"), settings], await installPeer(backend)));
    },
  };
}

/** OpenVINO GenAI as PyPI ships it, in a virtual environment of its own. */
function openvino(): Peer {
  const folder = join(ROOT, ".cache", `openvino-genai-${OPENVINO_VERSION}`);
  const python = join(folder, "bin", "python");
  return {
    name: `OpenVINO GenAI ${OPENVINO_VERSION}`,
    async prepare() {
      const done = join(folder, "installed");
      if (await exists(done)) return;
      say(`Installing openvino-genai ${OPENVINO_VERSION} into ${folder} …`);
      await run("python3", ["-m", "venv", folder]);
      await run(python, ["-m", "pip", "install", "--quiet", ...OPENVINO_PACKAGES]);
      await Deno.writeTextFile(done, "");
    },
    async measure(work) {
      return lastLine(await run(python, [here("openvino_speed.py"), JSON.stringify(work)]));
    },
  };
}

/** A program of the user's. */
function llamaBench(program: string, more: readonly string[]): Peer {
  return {
    name: [basename(program), ...more].join(" "),
    async prepare() {
      if (!await exists(program)) throw new Error(`Cannot find a program at ${program} (--peer)`);
    },
    measure: (work) => runLlamaBench(program, more, work),
  };
}

function here(name: string): string {
  return fromFileUrl(new URL(name, import.meta.url));
}

/** A runner prints its report last; libraries may print before it. */
function lastLine(output: string): PeerReport {
  return JSON.parse(output.trim().split("\n").at(-1)!);
}
