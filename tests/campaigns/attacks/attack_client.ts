/** A thread that sends one attack again and again, so that the measuring thread stays free. */

interface Attack {
  readonly url: string;
  readonly key: string;
  readonly path: string;
  readonly body: string;
  readonly clients: number;
  readonly until: number;
}

const thread = self as unknown as {
  onmessage: (event: MessageEvent<Attack>) => void;
  postMessage(statuses: [number, number][]): void;
};

thread.onmessage = async ({ data }: MessageEvent<Attack>) => {
  const { url, key, path, clients, until } = data;
  const body = new TextEncoder().encode(data.body);
  const headers = { "content-type": "application/json", authorization: `Bearer ${key}` };
  const statuses = new Map<number, number>();
  async function attack(): Promise<void> {
    while (Date.now() < until) {
      const signal = AbortSignal.timeout(Math.max(1, until - Date.now()));
      try {
        const answer = await fetch(url + path, { method: "POST", headers, body, signal });
        await answer.arrayBuffer();
        statuses.set(answer.status, (statuses.get(answer.status) ?? 0) + 1);
        if (answer.status === 429) await new Promise((resolve) => setTimeout(resolve, 50));
      } catch {
        // The request was aborted because the attack's time is over.
      }
    }
  }
  await Promise.all(Array.from({ length: clients }, attack));
  thread.postMessage([...statuses]);
};
