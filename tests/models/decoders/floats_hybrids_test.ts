import { testFloats } from "./checks.ts";

await testFloats("hybrid", "recurrent");
