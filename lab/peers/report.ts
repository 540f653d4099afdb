/** The workload that compy and its peers run, and the report of the results. */

export interface Work {
  /** Path of the GGUF file. */
  readonly model: string;
  /** Tokens of each prompt, and tokens decoded after it. */
  readonly prefill: number;
  readonly decode: number;
  /** Numbers of sequences to decode concurrently; each number is measured in turn. */
  readonly sequences: readonly number[];
  readonly threads: number;
}

export interface PeerRow {
  readonly work: string;
  readonly sequences: number;
  /** Tokens per second of all sequences together. */
  readonly tokens_per_second: number;
  /** Share of the machine's limit that was reached; only for compy. */
  readonly share_of_limit?: number;
}

export interface PeerReport {
  readonly rows: readonly PeerRow[];
  /** The GPU's name or the CPU instruction sets in use; undefined if the peer does not report them. */
  readonly isa?: string;
  /** The machine's limits; only for compy. */
  readonly limits?: { readonly read_gbps: number; readonly int8_gops: number; readonly f32_gflops: number };
  /** Resident memory in units of 10^6 bytes. This and the next field are undefined if the peer does not report them. */
  readonly rss_mb?: number;
  readonly load_ms?: number;
}
