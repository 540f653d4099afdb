import { testCuts } from "./checks.ts";

await testCuts("dense", "windowed dense");
