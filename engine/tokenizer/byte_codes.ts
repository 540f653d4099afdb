/**
 * The characters that stand for bytes in the tokens of byte-level BPE: printable Latin-1 for itself, every other byte
 * for the next character from U+0100 on. Source: `bytes_to_unicode` of GPT-2's encoder.
 */

function isPrintable(byte: number): boolean {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte !== 0xad);
}

/** The UTF-16 unit that stands for each byte. */
export const CODE_OF_BYTE = new Uint16Array(256);
const byteOfCode = new Map<number, number>();

let unprintable = 0;
for (let byte = 0; byte < 256; byte++) {
  const code = isPrintable(byte) ? byte : 0x100 + unprintable++;
  CODE_OF_BYTE[byte] = code;
  byteOfCode.set(code, byte);
}

/** The bytes that a token's text stands for; characters that stand for no byte, for themselves. */
export function bytesOfCodes(text: string): Uint8Array {
  const bytes: number[] = [];
  for (const character of text) {
    const byte = byteOfCode.get(character.codePointAt(0)!);
    if (byte !== undefined) bytes.push(byte);
    else bytes.push(...new TextEncoder().encode(character));
  }
  return Uint8Array.from(bytes);
}

/** The text of a token that stands for these bytes. */
export function codesOfBytes(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(CODE_OF_BYTE[byte]);
  return text;
}
