/**
 * Yields the items of all sources as they arrive, in order within each source. A source resumes only after its item is
 * taken, so that items do not accumulate for a slow reader. The first failure, or leaving the iteration, aborts `abort`
 * and waits for the other sources to end; a failure is then thrown.
 *
 * std's MuxAsyncIterator does not fit: behind a slow reader it collects items without limit, reports failures late, and
 * ends no source.
 */
export async function* merge<T>(
  sources: readonly AsyncIterable<T>[],
  abort: AbortController,
): AsyncGenerator<T> {
  const offers: { item: T; taken: () => void }[] = [];
  const failures: unknown[] = [];
  let running = sources.length;
  let wake = () => {};

  function offer(item: T): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    offers.push({ item, taken: resolve });
    wake();
    return promise;
  }

  async function produce(source: AsyncIterable<T>): Promise<void> {
    try {
      for await (const item of source) {
        if (abort.signal.aborted) break;
        await offer(item);
      }
    } catch (error) {
      failures.push(error);
    }
    running--;
    wake();
  }

  const producers = sources.map(produce);
  try {
    while (failures.length === 0 && (offers.length > 0 || running > 0)) {
      const next = offers.shift();
      if (!next) {
        await new Promise<void>((resolve) => wake = resolve);
        continue;
      }
      next.taken();
      yield next.item;
    }
  } finally {
    abort.abort();
    for (const { taken } of offers) taken();
    await Promise.all(producers);
  }
  if (failures.length > 0) throw failures[0];
}
