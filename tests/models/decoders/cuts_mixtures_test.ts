import { testCuts } from "./checks.ts";

await testCuts("mixture", "windowed mixture");
