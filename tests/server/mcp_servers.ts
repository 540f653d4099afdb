/** Starts MCP servers from npm and reads the tools that they list. */

import { join } from "@std/path";
import type { Tool } from "../../engine/chat/types.ts";

export interface McpServer {
  readonly name: string;
  /** The npm package with its version. */
  readonly npm: string;
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
}

/** The keys are not real: listing tools needs none. */
export const SERVERS: readonly McpServer[] = [
  { name: "notion", npm: "@notionhq/notion-mcp-server@2.5.2", env: { NOTION_TOKEN: "none" } },
  { name: "firecrawl", npm: "firecrawl-mcp@3.26.0", env: { FIRECRAWL_API_KEY: "none" } },
  { name: "github", npm: "@modelcontextprotocol/server-github@2025.4.8" },
  { name: "filesystem", npm: "@modelcontextprotocol/server-filesystem@2026.8.31", args: ["."] },
  { name: "memory", npm: "@modelcontextprotocol/server-memory@2026.8.31" },
  { name: "everything", npm: "@modelcontextprotocol/server-everything@2026.8.31" },
  { name: "chrome-devtools", npm: "chrome-devtools-mcp@1.11.0" },
  { name: "context7", npm: "@upstash/context7-mcp@4.1.1" },
];

const ANSWER_MS = 60_000;

interface Message {
  readonly id?: number;
  readonly result?: { readonly tools?: readonly McpTool[]; readonly nextCursor?: string };
}

interface McpTool {
  readonly name: string;
  readonly description?: string;
  readonly inputSchema: Readonly<Record<string, unknown>>;
}

/** Starts an installed server and returns the tools that it lists. */
export async function toolsOf(server: McpServer, folder: string): Promise<Tool[]> {
  const { args = [], env = {} } = server;
  const npm = server.npm.slice(0, server.npm.lastIndexOf("@"));
  const { bin } = JSON.parse(await Deno.readTextFile(join(folder, "node_modules", npm, "package.json")));
  const program = typeof bin === "string" ? bin : Object.values(bin as Record<string, string>)[0];
  const child = new Deno.Command("node", {
    args: [join("node_modules", npm, program), ...args],
    cwd: folder,
    env: { PATH: Deno.env.get("PATH") ?? "", HOME: folder, ...env },
    clearEnv: true,
    stdin: "piped",
    stdout: "piped",
    stderr: "null",
  }).spawn();
  const timer = setTimeout(() => child.kill("SIGKILL"), ANSWER_MS);
  const input = child.stdin.getWriter();
  const send = (message: object) =>
    input.write(new TextEncoder().encode(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\n"));
  try {
    const client = { name: "compy-tests", version: "1" };
    await send({
      id: 0,
      method: "initialize",
      params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: client },
    });
    const tools: McpTool[] = [];
    for await (const { id, result } of messages(child.stdout)) {
      if (id === undefined || !result) continue;
      if (id === 0) await send({ method: "notifications/initialized" });
      else tools.push(...result.tools ?? []);
      if (id > 0 && !result.nextCursor) break;
      const params = result.nextCursor ? { cursor: result.nextCursor } : {};
      await send({ id: id + 1, method: "tools/list", params });
    }
    return tools.map(({ name, description, inputSchema }) => ({
      name,
      description,
      parameters: inputSchema,
    }));
  } finally {
    clearTimeout(timer);
    child.kill("SIGKILL");
    await input.abort().catch(() => {});
    await child.status;
  }
}

async function* messages(stream: ReadableStream<Uint8Array<ArrayBuffer>>): AsyncGenerator<Message> {
  let text = "";
  for await (const piece of stream.pipeThrough(new TextDecoderStream())) {
    text += piece;
    const lines = text.split("\n");
    text = lines.pop()!;
    for (const line of lines) if (line.startsWith("{")) yield JSON.parse(line);
  }
}
