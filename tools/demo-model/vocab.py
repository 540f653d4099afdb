"""A byte-level BPE vocabulary of the model's own, in GPT-2's form: every text encodes, whatever its bytes."""
import re
from collections import Counter

# GPT-2's split into words, for the ASCII text that the grammar writes.
PIECES = re.compile(r"'(?:s|t|re|ve|m|ll|d)| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
_SPLIT = re.compile("(" + "|".join(map(re.escape, SPECIAL)) + ")")


def _byte_letters():
    """The printable letter that stands for each byte: itself where printable, else one from U+0100 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}


LETTERS = _byte_letters()


def _merge(symbols, left, right):
    out, i = [], 0
    while i < len(symbols):
        both = i + 1 < len(symbols) and symbols[i] == left and symbols[i + 1] == right
        out.append(left + right if both else symbols[i])
        i += 2 if both else 1
    return tuple(out)


class Vocab:
    def __init__(self, merges):
        self.merges = merges
        self.tokens = list(LETTERS.values()) + [a + b for a, b in merges] + SPECIAL
        self.ids = {token: i for i, token in enumerate(self.tokens)}
        self.ranks = {pair: rank for rank, pair in enumerate(merges)}
        self.cache = {}
        self.end, self.start, self.stop = (self.ids[token] for token in SPECIAL)

    def _piece(self, piece):
        symbols = tuple(LETTERS[byte] for byte in piece.encode())
        while len(symbols) > 1:
            rank, pair = min((self.ranks.get(pair, len(self.ranks)), pair) for pair in zip(symbols, symbols[1:]))
            if rank == len(self.ranks):
                break
            symbols = _merge(symbols, *pair)
        return [self.ids[symbol] for symbol in symbols]

    def encode(self, text):
        """Token ids; the special tokens' own texts become those tokens."""
        ids = []
        for part in _SPLIT.split(text):
            if part in SPECIAL:
                ids.append(self.ids[part])
                continue
            for piece in PIECES.findall(part):
                if piece not in self.cache:
                    self.cache[piece] = self._piece(piece)
                ids += self.cache[piece]
        return ids

    def decode(self, ids):
        bytes_of = {letter: byte for byte, letter in LETTERS.items()}
        texts = [self.tokens[i] if self.tokens[i] in SPECIAL else
                 bytes(bytes_of[letter] for letter in self.tokens[i]).decode("utf-8", "replace") for i in ids]
        return "".join(texts)


def train(texts, size):
    """The Vocab of `size` tokens that the most frequent pairs of `texts` give; ties go to the first in the alphabet."""
    counts = Counter(piece for text in texts for part in _SPLIT.split(text) if part not in SPECIAL for piece in PIECES.findall(part))
    words = {tuple(LETTERS[byte] for byte in piece.encode()): count for piece, count in counts.items()}
    merges = []
    while 256 + len(merges) + len(SPECIAL) < size:
        pairs = Counter()
        for word, count in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += count
        left, right = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append((left, right))
        joined = Counter()
        for word, count in words.items():
            joined[_merge(word, left, right) if left in word else word] += count
        words = joined
    return Vocab(merges)
