import { testCrowds } from "./checks.ts";

await testCrowds("windowed dense");
