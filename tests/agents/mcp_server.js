/** An MCP server with one tool, over standard input and output. */

import { createInterface } from "node:readline";
import process from "node:process";

const inputSchema = { type: "object", properties: { key: { type: "string" } }, required: ["key"] };
const tools = [{ name: "lookup", description: "Looks up a key", inputSchema }];

/** @type {Record<string, (params: any) => object>} */
const METHODS = {
  initialize: ({ protocolVersion }) => ({
    protocolVersion,
    capabilities: { tools: {} },
    serverInfo: { name: "probe", version: "1" },
  }),
  "tools/list": () => ({ tools }),
  "tools/call": (params) => ({ content: [{ type: "text", text: `found ${params.arguments.key}` }] }),
};

for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) continue;
  const result = METHODS[method]?.(params) ?? {};
  process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id, result }) + "\n");
}
