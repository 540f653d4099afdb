import type { TokenEvent } from "../api/events.ts";

/** Callbacks by which a stream reports its consumer's actions to the engine. */
export interface StreamHooks {
  /** Starts the request at the first `next()`, which rejects with any error of this call. */
  start(): void | Promise<void>;
  /** Reports that the consumer left before the end of the stream. */
  leave(): void;
  /** Reports that the consumer has read half of a full queue. */
  resume(): void;
}

/** Carries the events of one request from the engine, which pushes, to the consumer, which pulls. */
export class EventStream implements AsyncIterableIterator<TokenEvent> {
  /** Maximum number of unread events. A sequence with a full stream is not scheduled until half of them are read. */
  static readonly CAPACITY = 1024;

  readonly #hooks: StreamHooks;
  #events: TokenEvent[] = [];
  #read = 0;
  #full = false;
  #readers: PromiseWithResolvers<IteratorResult<TokenEvent>>[] = [];
  #started = false;
  #ended = false;
  #error: Error | undefined;

  constructor(hooks: StreamHooks) {
    this.#hooks = hooks;
  }

  get full(): boolean {
    return this.#full;
  }

  get #unread(): number {
    return this.#events.length - this.#read;
  }

  /** Queues an event. A finish event ends the stream; events after the end are ignored. */
  push(event: TokenEvent): void {
    if (this.#ended) return;
    this.#ended = event.type === "finish";
    const reader = this.#readers.shift();
    if (reader) reader.resolve({ value: event, done: false });
    else this.#events.push(event);
    if (this.#unread >= EventStream.CAPACITY) this.#full = true;
    if (this.#ended) this.#dismissReaders();
  }

  /** Ends the stream with an error, which is thrown after the unread events. */
  fail(error: Error): void {
    if (this.#ended) return;
    this.#ended = true;
    const reader = this.#readers.shift();
    if (reader) reader.reject(error);
    else this.#error = error;
    this.#dismissReaders();
  }

  next(): Promise<IteratorResult<TokenEvent>> {
    if (!this.#started) {
      this.#started = true;
      try {
        this.#hooks.start()?.catch((error) => this.fail(error));
      } catch (error) {
        this.#ended = true;
        return Promise.reject(error);
      }
    }
    if (this.#read < this.#events.length) return Promise.resolve({ value: this.#take(), done: false });
    if (this.#error) {
      const error = this.#error;
      this.#error = undefined;
      return Promise.reject(error);
    }
    if (this.#ended) return Promise.resolve({ value: undefined, done: true });
    const reader = Promise.withResolvers<IteratorResult<TokenEvent>>();
    this.#readers.push(reader);
    return reader.promise;
  }

  return(): Promise<IteratorResult<TokenEvent>> {
    const left = this.#started && !this.#ended;
    this.#started = true;
    this.#ended = true;
    this.#events = [];
    this.#read = 0;
    this.#error = undefined;
    this.#dismissReaders();
    if (left) this.#hooks.leave();
    return Promise.resolve({ value: undefined, done: true });
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  #take(): TokenEvent {
    const event = this.#events[this.#read++];
    if (this.#read === this.#events.length || this.#read === EventStream.CAPACITY) {
      this.#events = this.#events.slice(this.#read);
      this.#read = 0;
    }
    if (this.#full && this.#unread <= EventStream.CAPACITY / 2) {
      this.#full = false;
      this.#hooks.resume();
    }
    return event;
  }

  #dismissReaders(): void {
    for (const reader of this.#readers) reader.resolve({ value: undefined, done: true });
  }
}
