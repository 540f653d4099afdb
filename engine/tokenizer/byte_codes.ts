/**
 * Characters that represent bytes in tokens of byte-level BPE. A printable Latin-1 byte is its own character; other
 * bytes get characters from U+0100 on. Source: `bytes_to_unicode` of GPT-2's encoder.
 */

function isPrintable(byte: number): boolean {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte !== 0xad);
}

/** The UTF-16 unit that represents each byte. */
export const CODE_OF_BYTE = new Uint16Array(256);
/** Byte of each UTF-16 unit; -1 if the unit represents none. */
const BYTE_OF_CODE = new Int16Array(0x200).fill(-1);

let unprintable = 0;
for (let byte = 0; byte < 256; byte++) {
  const code = isPrintable(byte) ? byte : 0x100 + unprintable++;
  CODE_OF_BYTE[byte] = code;
  BYTE_OF_CODE[code] = byte;
}

/**
 * Returns the bytes that a token's text represents. Characters that represent no byte are encoded as UTF-8.
 */
export function bytesOfCodes(text: string): Uint8Array {
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) {
    const byte = BYTE_OF_CODE[text.charCodeAt(i)] ?? -1;
    if (byte < 0) return mixedBytes(text);
    bytes[i] = byte;
  }
  return bytes;
}

function mixedBytes(text: string): Uint8Array {
  const utf8 = new TextEncoder();
  return Uint8Array.from([...text].flatMap((character) => {
    const byte = BYTE_OF_CODE[character.codePointAt(0)!] ?? -1;
    return byte < 0 ? [...utf8.encode(character)] : [byte];
  }));
}

/** Returns the token text that represents these bytes. */
export function codesOfBytes(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(CODE_OF_BYTE[byte]);
  return text;
}
