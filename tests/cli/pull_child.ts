/** Pulls one model with the options in its only argument; the test kills it meanwhile. */
import { pull } from "../../hub/mod.ts";

await pull(JSON.parse(Deno.args[0]));
