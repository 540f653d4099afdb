import type { DatabaseSync, SQLInputValue } from "node:sqlite";
import { WordedError } from "../../engine/api/errors.ts";
import type { Shift } from "./clock.ts";
import {
  type BatchCounts,
  type BatchRecord,
  type FilePurpose,
  type FileRecord,
  type Listed,
  type Page,
  ServiceError,
} from "../types.ts";

const SCHEMA_VERSION = 1;
/** SQL of the column that is added to databases of earlier versions, which can still use the database afterwards. */
const REASONING_COLUMN = "reasoning_tokens INTEGER NOT NULL DEFAULT 0";
const SCHEMA = `
CREATE TABLE files (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, bytes INTEGER NOT NULL,
  created_at INTEGER NOT NULL, expires_at INTEGER, filename TEXT NOT NULL, purpose TEXT NOT NULL, path TEXT NOT NULL
) STRICT;
CREATE TABLE batches (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, input_file_id TEXT NOT NULL,
  ended INTEGER NOT NULL, record TEXT NOT NULL, total INTEGER NOT NULL, completed INTEGER NOT NULL,
  failed INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL, cached_tokens INTEGER NOT NULL,
  output_tokens INTEGER NOT NULL, ${REASONING_COLUMN}
) STRICT;
CREATE INDEX unfinished ON batches (input_file_id) WHERE ended = 0;
`;
const FILE_COLUMNS =
  `id, owner, bytes, created_at AS createdAt, expires_at AS expiresAt, filename, purpose, path`;
const BATCH_COLUMNS =
  `record, total, completed, failed, prompt_tokens, cached_tokens, output_tokens, reasoning_tokens`;

/** The times of a batch that has not ended. */
const TIMES = ["createdAt", "expiresAt", "inProgressAt", "finalizingAt", "cancellingAt"] as const;

type Row = Record<string, unknown>;

/** The page of batches to list, and the prefix of their ids. */
export type BatchPage = Page & { readonly prefix?: string };

/**
 * The records of files and batches, in one SQLite database. The answers of a batch are in its journal instead. Every
 * change is durable when the call returns, except counts: they survive a process crash, and after a power failure the
 * journal has them.
 */
export class BatchStore {
  readonly #db: DatabaseSync;
  readonly #counts: DatabaseSync;

  /** Opens or creates the database. Throws for another schema version, and for a file that is not a database. */
  constructor(path: string) {
    this.#db = open(path, "FULL");
    const { user_version: version } = this.#db.prepare("PRAGMA user_version").get() as Row;
    if (version === 0) {
      this.#inTransaction(() => this.#db.exec(`${SCHEMA} PRAGMA user_version = ${SCHEMA_VERSION}`));
    } else if (version !== SCHEMA_VERSION) {
      const problem = `its version must be ${SCHEMA_VERSION} (got ${version})`;
      throw new WordedError([`Cannot use "${path}": ${problem}; give another `, { data: undefined }]);
    }
    this.#addMissingColumn();
    // Syncing counts with every group of answers, in addition to the journal, would halve a fast disk's throughput.
    this.#counts = open(path, "NORMAL");
  }

  #addMissingColumn(): void {
    const columns = this.#rows("SELECT name FROM pragma_table_info('batches')");
    if (columns.some(({ name }) => name === "reasoning_tokens")) return;
    orFull(() => this.#db.exec(`ALTER TABLE batches ADD COLUMN ${REASONING_COLUMN}`));
  }

  close(): void {
    this.#counts.close();
    this.#db.close();
  }

  addFile(file: FileRecord): void {
    this.#run(
      `INSERT INTO files (id, owner, bytes, created_at, expires_at, filename, purpose, path)
       VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
      file.id,
      file.owner,
      file.bytes,
      file.createdAt,
      file.expiresAt,
      file.filename,
      file.purpose,
      file.path,
    );
  }

  /** Returns a file of the owner. Throws ServiceError file_not_found. */
  file(owner: string, id: string): FileRecord {
    const row = this.#row(`SELECT ${FILE_COLUMNS} FROM files WHERE id = ? AND owner = ?`, id, owner);
    if (row === undefined) throw notFound("file", id);
    return row as unknown as FileRecord;
  }

  files(
    owner: string,
    { after, limit, purpose, newestFirst }: Page & { purpose?: FilePurpose; newestFirst: boolean },
  ): Listed<FileRecord> {
    const where = ["owner = ?"];
    const values: SQLInputValue[] = [owner];
    if (purpose !== undefined) {
      where.push("purpose = ?");
      values.push(purpose);
    }
    if (after !== undefined) {
      where.push(`seq ${newestFirst ? "<" : ">"} ?`);
      values.push(this.#place("files", owner, after));
    }
    const sql = `SELECT ${FILE_COLUMNS} FROM files WHERE ${where.join(" AND ")}
      ORDER BY seq ${newestFirst ? "DESC" : "ASC"} LIMIT ?`;
    return listed(this.#rows(sql, ...values, limit + 1) as unknown as FileRecord[], limit);
  }

  /** Returns the total bytes of all files. */
  storedBytes(): number {
    return this.#row("SELECT coalesce(sum(bytes), 0) AS bytes FROM files")!.bytes as number;
  }

  /** Returns every file of every owner. */
  allFiles(): FileRecord[] {
    return this.#rows(`SELECT ${FILE_COLUMNS} FROM files`) as unknown as FileRecord[];
  }

  expiredFiles(now: number): FileRecord[] {
    const sql = `SELECT ${FILE_COLUMNS} FROM files WHERE expires_at <= ?`;
    return this.#rows(sql, now) as unknown as FileRecord[];
  }

  removeFile(id: string): void {
    this.#run("DELETE FROM files WHERE id = ?", id);
  }

  /** Returns true while an unfinished batch reads the file. */
  isInput(fileId: string): boolean {
    return this.#row("SELECT 1 FROM batches WHERE ended = 0 AND input_file_id = ?", fileId) !== undefined;
  }

  addBatch(batch: BatchRecord): void {
    const { counts, ...record } = batch;
    this.#run(
      `INSERT INTO batches (id, owner, input_file_id, ended, record, total, completed, failed, prompt_tokens,
       cached_tokens, output_tokens, reasoning_tokens) VALUES (?, ?, ?, 0, ?, ?, ?, ?, ?, ?, ?, ?)`,
      batch.id,
      batch.owner,
      batch.inputFileId,
      JSON.stringify(record),
      ...countValues(counts),
    );
  }

  /** Returns a batch of the owner. Throws ServiceError batch_not_found. */
  batch(owner: string, id: string): BatchRecord {
    const row = this.#row(`SELECT ${BATCH_COLUMNS} FROM batches WHERE id = ? AND owner = ?`, id, owner);
    if (row === undefined) throw notFound("batch", id);
    return batchOf(row);
  }

  /** Returns the owner's batches whose ids begin with `prefix`, newest first. */
  batches(owner: string, { after, before, limit, prefix = "" }: BatchPage): Listed<BatchRecord> {
    const from = before ?? after;
    const place = from === undefined ? Number.MAX_SAFE_INTEGER : this.#place("batches", owner, from);
    const [compared, order] = before === undefined ? ["<", "DESC"] : [">", "ASC"];
    const sql = `SELECT ${BATCH_COLUMNS} FROM batches WHERE owner = ? AND seq ${compared} ? AND
      substr(id, 1, ?) = ? ORDER BY seq ${order} LIMIT ?`;
    const rows = this.#rows(sql, owner, place, prefix.length, prefix, limit + 1);
    const { data, hasMore } = listed(rows.map(batchOf), limit);
    return { data: before === undefined ? data : data.reverse(), hasMore };
  }

  /** Removes the records of a batch and of its files. Returns the paths of these files. */
  removeBatch({ id, owner, inputFileId, outputFileId, errorFileId }: BatchRecord): string[] {
    const ids = [inputFileId, outputFileId, errorFileId].filter((file) => file !== null);
    const marks = ids.map(() => "?").join(", ");
    const files = this.#rows(`SELECT path FROM files WHERE owner = ? AND id IN (${marks})`, owner, ...ids);
    this.#inTransaction(() => {
      this.#run(`DELETE FROM files WHERE owner = ? AND id IN (${marks})`, owner, ...ids);
      this.#run("DELETE FROM batches WHERE id = ?", id);
    });
    return files.map(({ path }) => path as string);
  }

  /** Returns the batches that have not ended, oldest first. */
  unfinished(): BatchRecord[] {
    return this.#rows(`SELECT ${BATCH_COLUMNS} FROM batches WHERE ended = 0 ORDER BY seq`).map(batchOf);
  }

  /** Changes a batch's record and adds the files that it made, in one transaction. */
  change(
    batch: BatchRecord,
    change: Partial<Omit<BatchRecord, "counts">>,
    ended = false,
    files: readonly FileRecord[] = [],
  ): BatchRecord {
    const changed = { ...batch, ...change };
    const { counts: _, ...record } = changed;
    this.#inTransaction(() => {
      for (const file of files) this.addFile(file);
      const sql = "UPDATE batches SET record = ?, ended = ? WHERE id = ?";
      this.#run(sql, JSON.stringify(record), ended ? 1 : 0, batch.id);
    });
    return changed;
  }

  /** Shifts the times of unfinished batches and of files that expire, after the clock was set. */
  shiftTimes(shift: Shift): void {
    const moved = this.unfinished().filter(({ createdAt }) => shift(createdAt) !== 0);
    const files = this.allFiles().filter((file) => file.expiresAt !== null && shift(file.createdAt) !== 0);
    if (moved.length + files.length === 0) return;
    this.#inTransaction(() => {
      for (const { counts: _, ...record } of moved) {
        const seconds = shift(record.createdAt);
        const times = TIMES.map((name) => [name, record[name] === null ? null : record[name] + seconds]);
        const changed = JSON.stringify({ ...record, ...Object.fromEntries(times) });
        this.#run("UPDATE batches SET record = ? WHERE id = ?", changed, record.id);
      }
      const sql = "UPDATE files SET created_at = created_at + ?1, expires_at = expires_at + ?1 WHERE id = ?2";
      for (const { id, createdAt } of files) this.#run(sql, shift(createdAt), id);
    });
  }

  setCounts(id: string, counts: BatchCounts): void {
    const sql =
      `UPDATE batches SET total = ?, completed = ?, failed = ?, prompt_tokens = ?, cached_tokens = ?,
       output_tokens = ?, reasoning_tokens = ? WHERE id = ?`;
    orFull(() => this.#counts.prepare(sql).run(...countValues(counts), id));
  }

  /** Returns the entry's position in the list. Throws ServiceError cursor_not_found. */
  #place(table: "files" | "batches", owner: string, id: string): number {
    const row = this.#row(`SELECT seq FROM ${table} WHERE id = ? AND owner = ?`, id, owner);
    if (row === undefined) {
      const message = `Invalid "after": there is no ${JSON.stringify(id.slice(0, 100))} in this list`;
      throw new ServiceError("cursor_not_found", message);
    }
    return row.seq as number;
  }

  #run(sql: string, ...values: SQLInputValue[]): void {
    orFull(() => this.#db.prepare(sql).run(...values));
  }

  #row(sql: string, ...values: SQLInputValue[]): Row | undefined {
    return this.#db.prepare(sql).get(...values) as Row | undefined;
  }

  #rows(sql: string, ...values: SQLInputValue[]): Row[] {
    return this.#db.prepare(sql).all(...values) as Row[];
  }

  #inTransaction(work: () => void): void {
    this.#db.exec("BEGIN IMMEDIATE");
    try {
      work();
      orFull(() => this.#db.exec("COMMIT"));
    } catch (error) {
      // A full disk may already have ended the transaction.
      if (this.#db.isTransaction) this.#db.exec("ROLLBACK");
      throw error;
    }
  }
}

const SQLITE_FULL = "database or disk is full";

/** Runs a change. Throws ServiceError storage_full when the disk is full. */
function orFull(change: () => unknown): void {
  try {
    change();
  } catch (cause) {
    // Some errors lack SQLite's code.
    if (!(cause instanceof Error && cause.message.includes(SQLITE_FULL))) throw cause;
    throw new ServiceError("storage_full", "There is no room on the server's disk", { cause });
  }
}

function open(path: string, synchronous: "FULL" | "NORMAL"): DatabaseSync {
  // node:sqlite is loaded only when needed: Node 22 prints a warning about it, and a server without batches needs no
  // database.
  const sqlite = process.getBuiltinModule("node:sqlite");
  const db = new sqlite.DatabaseSync(path);
  db.exec(`PRAGMA journal_mode = WAL; PRAGMA synchronous = ${synchronous}`);
  return db;
}

function countValues(counts: BatchCounts): number[] {
  const { total, completed, failed, promptTokens, cachedTokens, outputTokens, reasoningTokens } = counts;
  return [total, completed, failed, promptTokens, cachedTokens, outputTokens, reasoningTokens];
}

function batchOf(row: Row): BatchRecord {
  const { record, total, completed, failed, prompt_tokens, cached_tokens, output_tokens, reasoning_tokens } =
    row;
  const counts = {
    total,
    completed,
    failed,
    promptTokens: prompt_tokens,
    cachedTokens: cached_tokens,
    outputTokens: output_tokens,
    reasoningTokens: reasoning_tokens,
  };
  return { ...JSON.parse(record as string), counts };
}

function listed<T>(rows: T[], limit: number): Listed<T> {
  return { data: rows.slice(0, limit), hasMore: rows.length > limit };
}

function notFound(kind: "file" | "batch", id: string): ServiceError {
  return new ServiceError(
    `${kind}_not_found`,
    `There is no ${kind} ${JSON.stringify(id.slice(0, 100))} here`,
  );
}
