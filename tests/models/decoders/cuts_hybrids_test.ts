import { testCuts } from "./checks.ts";

await testCuts("hybrid", "hybrid mixture");
