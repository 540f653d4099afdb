import { testCuts } from "./checks.ts";

await testCuts("hybrid", "recurrent", "hybrid mixture");
