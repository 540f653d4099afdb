import { testCrowds } from "./checks.ts";

await testCrowds("hybrid", "recurrent");
