import { testPreemption } from "./checks.ts";

await testPreemption("hybrid", "hybrid mixture");
