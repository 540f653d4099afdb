"""What exact passes have in common: a dense decoder, of which families override what is theirs."""
import re

import numpy as np
from gguf import GGMLQuantizationType
from gguf.quants import dequantize

import int16


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def squared_relu(x):
    return np.maximum(x, 0) ** 2


def rounded(x):
    """In 8-bit blocks of 32 columns, as kernels round activations that blocks of weights are multiplied by."""
    blocks = x.reshape(-1, 32)
    scale = np.abs(blocks).max(axis=1, keepdims=True) / 127
    codes = np.rint(np.divide(blocks, scale, out=np.zeros_like(blocks), where=scale > 0))
    return (codes * scale).reshape(x.shape)


def softmax(x):
    x = np.exp(x - x.max(axis=-1, keepdims=True))
    return x / x.sum(axis=-1, keepdims=True)


class Cache:
    """What one sequence carries along, by layer: keys and values (tokens, kv heads, head dim); or the last inputs of a convolution
    (taps - 1, channels) and a state (value heads, value dim, key dim). With `rounds` attention rounds as it does on the CPU."""

    def __init__(self, layers, rounds=False):
        self.length, self.keys, self.values = 0, [None] * layers, [None] * layers
        self.inputs, self.states = [None] * layers, [None] * layers
        self.rounds, self.scales = rounds, [None] * layers  # of values: (tokens, kv heads)

    def append(self, layer, k, v):
        seen = self.keys[layer] is not None
        if self.rounds:
            k, (v, scales) = int16.keys(k), int16.values(v)
            self.scales[layer] = np.concatenate([self.scales[layer], scales]) if seen else scales
        self.keys[layer] = np.concatenate([self.keys[layer], k]) if seen else k
        self.values[layer] = np.concatenate([self.values[layer], v]) if seen else v
        return self.keys[layer], self.values[layer]

    def queries(self, q):
        return int16.queries(q) if self.rounds else q

    def weights(self, layer, weights):
        """Those of a layer's values: (KV heads, queries a KV head, tokens, seen)."""
        return int16.weights(weights, self.scales[layer]) if self.rounds else weights


class Model:
    """A pre-norm decoder with grouped heads and SwiGLU."""

    interleaved = False  # rotated pairs are (2i, 2i + 1), not (i, i + half)
    feed_forward_norm = "ffn_norm"
    output_norm = "output_norm"
    rounds = None  # a pattern: the inputs of matrices that it matches are rounded to 8 bits

    def __init__(self, reader, context):
        self.weights = {t.name: dequantize(t.data, t.tensor_type).astype(np.float64).reshape(t.shape[::-1])
                        for t in reader.tensors if t.tensor_type != GGMLQuantizationType.I64}
        self.fields = {name: field.contents() for name, field in reader.fields.items()}
        self.architecture, self.context = self.fields["general.architecture"], context
        drafting = self.key("nextn_predict_layers", 0)
        self.layers, self.heads = self.key("block_count") - drafting, self.key("attention.head_count")
        self.kv_heads = self.key("attention.head_count_kv", self.heads)
        self.head_dim = self.key("attention.key_length")
        if self.head_dim is None:
            self.head_dim = self.key("embedding_length") // max(self.heads, 1)
        self.rotated = self.key("rope.dimension_count", self.head_dim)
        self.eps = self.key("attention.layer_norm_rms_epsilon", self.key("attention.layer_norm_epsilon"))
        self.scale = 1 / np.sqrt(self.head_dim)
        self.magnitude = 1.0  # of cosine and sine
        self.frequencies = float(self.key("rope.freq_base", 1e4)) ** -(np.arange(0, self.rotated, 2) / self.rotated)
        if "rope_freqs.weight" in self.weights:
            self.frequencies = self.frequencies / self.weights["rope_freqs.weight"]

    def key(self, name, default=None):
        return self.fields.get(f"{self.architecture}.{name}", default)

    def norm(self, x, name):
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.eps) * self.weights[f"{name}.weight"]

    def linear(self, x, name):
        if self.rounds and self.rounds.search(name):
            x = rounded(x)
        y = x @ self.weights[f"{name}.weight"].T
        bias = self.weights.get(f"{name}.bias")
        return y if bias is None else y + bias

    def rotate(self, x, start, layer):
        """Rotary embedding of x: (tokens, heads, head dim), the first token at position `start`."""
        frequencies = self.frequencies_of(layer)
        if frequencies is None:
            return x
        turn = self.magnitude_of(layer) * np.exp(1j * (start + np.arange(len(x)))[:, None, None] * frequencies)
        rotated = 2 * len(frequencies)
        y, head = x.copy(), x[..., :rotated]
        if self.interleaved:
            z = (head[..., 0::2] + 1j * head[..., 1::2]) * turn
            y[..., 0:rotated:2], y[..., 1:rotated:2] = z.real, z.imag
        else:
            half = rotated // 2
            z = (head[..., :half] + 1j * head[..., half:]) * turn
            y[..., :half], y[..., half:rotated] = z.real, z.imag
        return y

    def frequencies_of(self, layer):
        """Angles a position of a layer's pairs; None where it has no positions."""
        return self.frequencies

    def magnitude_of(self, layer):
        return self.magnitude

    def queries_keys_values(self, x, name):
        """(tokens, heads, head dim) each; queries may have a gate behind each head's dimensions."""
        n = len(x)
        q = self.linear(x, f"{name}.attn_q").reshape(n, self.heads, -1)
        k = self.linear(x, f"{name}.attn_k").reshape(n, self.kv_heads, self.head_dim)
        v = self.linear(x, f"{name}.attn_v").reshape(n, self.kv_heads, self.head_dim)
        return q, k, v

    def norm_heads(self, x, name):
        """Of queries or keys: (tokens, heads, head dim)."""
        return self.norm(x, name)

    def attention(self, x, layer, cache):
        n, name, group = len(x), f"blk.{layer}", self.heads // self.kv_heads
        q, k, v = self.queries_keys_values(x, name)
        q, gate = q[..., :self.head_dim], q[..., self.head_dim:]
        q, k = self.place(q, k, layer, cache.length)
        keys, values = cache.append(layer, k, v)
        q = q * self.temperature(cache.length + np.arange(n), layer)[:, None, None]
        q = cache.queries(q.reshape(n, self.kv_heads, group, self.head_dim))
        scores = self.bounded(np.einsum("nhgd,mhd->hgnm", q, keys) * self.scale)
        hidden = self.hidden(x, layer, cache, len(keys))
        weights = cache.weights(layer, self.attention_weights(np.where(hidden, -np.inf, scores), layer))
        mixed = np.einsum("hgnm,mhd->nhgd", weights, values).reshape(n, self.heads, -1)
        if gate.size:
            mixed = mixed * sigmoid(gate)
        return self.linear(mixed.reshape(n, -1), f"{name}.attn_output")

    def place(self, q, k, layer, start):
        """Norms heads, where the model does, and rotates them."""
        name = f"blk.{layer}"
        if f"{name}.attn_q_norm.weight" in self.weights:
            q, k = self.norm_heads(q, f"{name}.attn_q_norm"), self.norm_heads(k, f"{name}.attn_k_norm")
        return self.rotate(q, start, layer), self.rotate(k, start, layer)

    def bounded(self, scores):
        return scores

    def attention_weights(self, scores, layer):
        """Of scores (kv heads, queries a KV head, tokens, seen)."""
        return softmax(scores)

    def temperature(self, positions, layer):
        """What queries are multiplied by after rotation."""
        return np.ones(len(positions))

    def hidden(self, x, layer, cache, seen):
        """Returns which tokens each row does not attend to: (tokens, seen), or (kv heads, 1, tokens, seen)."""
        position, seen = cache.length + np.arange(len(x))[:, None], np.arange(seen)
        window = self.window(layer)
        return (seen > position) | ((position - seen >= window) if window else False)

    def window(self, layer):
        """Tokens that a row sees, its own the last of them; 0 is all."""
        return 0

    def mix(self, x, layer, cache):
        return self.attention(x, layer, cache)

    def feed_forward(self, x, name, suffix=""):
        gate, up, down = (f"{name}.ffn_{part}{suffix}" for part in ("gate", "up", "down"))
        return self.linear(silu(self.linear(x, gate)) * self.linear(x, up), down)

    def layer(self, x, layer, cache):
        name = f"blk.{layer}"
        x = x + self.mix(self.norm(x, f"{name}.attn_norm"), layer, cache)
        return x + self.feed_forward(self.norm(x, f"{name}.{self.feed_forward_norm}"), name)

    def embed(self, tokens):
        return self.weights["token_embd.weight"][tokens]

    def rows(self, tokens, cache):
        """Appends `tokens`; returns the normed rows after the last layer: (tokens, width)."""
        return self.norm(self.layer_rows(tokens, cache)[-1], self.output_norm)

    def layer_rows(self, tokens, cache):
        """Appends `tokens`. Returns a list with the input rows of each layer, followed by the rows after the last layer."""
        rows = [self.embed(tokens)]
        for layer in range(self.layers):
            rows.append(self.layer(rows[-1], layer, cache))
        cache.length += len(tokens)
        return rows

    def pooled(self, tokens, way):
        rows = self.rows(tokens, Cache(self.layers))
        if way == "mean":
            return rows.mean(axis=0)
        row = rows[0 if way == "cls" else -1]
        return self.linear(row, "cls.output") if way == "rank" else row

    def logits(self, rows):
        return self.linear(rows, "output" if "output.weight" in self.weights else "token_embd")

    def log_probs(self, tokens, cache):
        """Appends `tokens`; returns the log-probabilities after the last: (vocabulary)."""
        logits = self.logits(self.rows(tokens, cache)[-1:])[0]
        logits = logits - logits.max()
        return logits - np.log(np.exp(logits).sum())

    def score(self, tokens):
        """The log-probability of each token but the first: (tokens - 1)."""
        logits = self.logits(self.rows(tokens[:-1], Cache(self.layers)))
        logits = logits - logits.max(axis=1, keepdims=True)
        chosen = logits[np.arange(len(tokens) - 1), tokens[1:]]
        return chosen - np.log(np.exp(logits).sum(axis=1))

    def greedy(self, tokens, steps, top, rounds, patterns=()):
        """The likeliest tokens after each step; with `rounds` also where attention rounds as on the CPU, along the same tokens, and
        for each pattern with the inputs of the matrices that it matches in 8 bits."""
        cache, kept, out = Cache(self.layers), Cache(self.layers, True), []
        caches = {pattern: Cache(self.layers) for pattern in patterns}
        for _ in range(steps):
            row = self.log_probs(tokens, cache)
            order = np.argsort(-row, kind="stable")[:top]
            step = {"token": int(order[0]), "top": [[int(i), float(row[i])] for i in order]}
            if rounds:
                step["rounded"] = self.log_probs(tokens, kept)[order].tolist()
            if patterns:
                step["inputs"] = {}
            for pattern, one in caches.items():
                self.rounds = re.compile(pattern)
                step["inputs"][pattern] = self.log_probs(tokens, one)[order].tolist()
                self.rounds = None
            tokens = [step["token"]]
            out.append(step)
        return out

    def drafts(self, tokens, steps, top):
        """What the layer behind the others takes for likeliest after the tokens, then after its own choice, and so on: it sees each
        token beside the row before it, and of a draft beside its own last row; the first token has zeros before it. "DeepSeek-V3
        Technical Report" (arXiv 2412.19437), section 2.2."""
        layer, name = self.layers, f"blk.{self.layers}"
        cache = Cache(layer + 1)
        before = self.rows(tokens[:-1], Cache(layer)) if len(tokens) > 1 else np.zeros((0, self.key("embedding_length")))
        before = np.concatenate([np.zeros((1, before.shape[1])), before])
        own = lambda tensor, other: tensor if f"{tensor}.weight" in self.weights else other
        embedding = self.weights[f"{own(f'{name}.nextn.embed_tokens', 'token_embd')}.weight"]
        head = "output" if "output.weight" in self.weights else "token_embd"
        out = []
        for _ in range(steps):
            both = [self.norm(embedding[tokens], f"{name}.nextn.enorm"), self.norm(before, f"{name}.nextn.hnorm")]
            x = self.layer(self.linear(np.concatenate(both, axis=1), f"{name}.nextn.eh_proj"), layer, cache)
            cache.length += len(tokens)
            before = self.norm(x[-1:], own(f"{name}.nextn.shared_head_norm", own(f"{name}.layer_output_norm", self.output_norm)))
            logits = self.linear(before, own(f"{name}.nextn.shared_head_head", head))[0]
            logits = logits - logits.max()
            row = logits - np.log(np.exp(logits).sum())
            order = np.argsort(-row, kind="stable")[:top]
            tokens = [int(order[0])]
            out.append({"token": tokens[0], "top": [[int(i), float(row[i])] for i in order]})
        return out
