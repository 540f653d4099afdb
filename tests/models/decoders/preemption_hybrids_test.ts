import { testPreemption } from "./checks.ts";

await testPreemption("hybrid", "recurrent", "hybrid mixture");
