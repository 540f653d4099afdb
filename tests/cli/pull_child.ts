/** Pulls one model with the options of its only argument, to be killed meanwhile. */
import { pull } from "../../hub/mod.ts";

await pull(JSON.parse(Deno.args[0]));
