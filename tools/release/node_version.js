/** Deno names the Node that it is like; a browser names none. */
const version = globalThis.process?.versions?.node;

if (version !== undefined && Number.parseInt(version) < 22) {
  throw new Error(
    `The library compy needs Node 22 or newer (this is ${version}); the command \`compy\` also works with this one`,
  );
}
