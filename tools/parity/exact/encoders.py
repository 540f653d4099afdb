"""Encoders, which read a text in both directions: norms about the mean, and no cache."""
import numpy as np
from model import Model, silu, softmax


def gelu(x):
    """By its approximation with tanh, as llama.cpp computes it."""
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)))


class Encoder(Model):
    head_activation = staticmethod(np.tanh)

    def norm(self, x, name):
        x = x - x.mean(axis=-1, keepdims=True)
        x = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.eps) * self.weights[f"{name}.weight"]
        return x + self.weights.get(f"{name}.bias", 0)

    def queries_keys_values(self, x, name):
        if f"{name}.attn_qkv.weight" not in self.weights:
            return super().queries_keys_values(x, name)
        return (part.reshape(len(x), self.heads, -1) for part in np.split(self.linear(x, f"{name}.attn_qkv"), 3, axis=-1))

    def attention(self, x, layer, cache=None):
        n, name = len(x), f"blk.{layer}"
        q, k, v = self.queries_keys_values(x, name)
        q, k = self.rotate(q, 0, layer), self.rotate(k, 0, layer)
        scores = self.bounded(np.einsum("nhd,mhd->hnm", q, k) * self.scale)
        window = self.window(layer)
        if window:
            scores = np.where(np.abs(np.arange(n)[:, None] - np.arange(n)) > window // 2, -np.inf, scores)
        return self.linear(np.einsum("hnm,mhd->nhd", softmax(scores), v).reshape(n, -1), f"{name}.attn_output")

    def head_row(self, rows):
        return rows[0]

    def pooled(self, tokens, way):
        rows = self.rows(tokens)
        if way == "mean":
            return rows.mean(axis=0)
        if way != "rank":
            return rows[0 if way == "cls" else -1]
        row = self.head_row(rows)
        if "cls.weight" in self.weights:
            row = self.head_activation(self.linear(row, "cls"))
        if "cls.norm.weight" in self.weights:
            row = self.norm(row, "cls.norm")
        return self.linear(row, "cls.output")


class Bert(Encoder):
    """Norms after each half of a layer; learned positions, all tokens of the first type."""

    def frequencies_of(self, layer):
        return None

    def embedded(self, tokens):
        x = self.weights["token_embd.weight"][tokens] + self.weights["token_types.weight"][0]
        return x + self.weights["position_embd.weight"][:len(tokens)]

    def inner(self, x, name):
        return gelu(self.linear(x, f"{name}.ffn_up"))

    def feed_forward(self, x, name):
        return self.linear(self.inner(x, name), f"{name}.ffn_down")

    def rows(self, tokens, cache=None):
        x = self.norm(self.embedded(tokens), "token_embd_norm")
        for layer in range(self.layers):
            name = f"blk.{layer}"
            x = self.norm(x + self.attention(x, layer), f"{name}.attn_output_norm")
            x = self.norm(x + self.feed_forward(x, name), f"{name}.layer_output_norm")
        return x


class NomicBert(Bert):
    """Rotated queries and keys, SwiGLU."""

    def frequencies_of(self, layer):
        return self.frequencies

    def embedded(self, tokens):
        return self.weights["token_embd.weight"][tokens] + self.weights["token_types.weight"][0]

    def inner(self, x, name):
        return silu(self.linear(x, f"{name}.ffn_gate")) * self.linear(x, f"{name}.ffn_up")


class NomicBertMoe(NomicBert):
    """GELU, and in some layers experts without gates, weighed by the softmax over all."""

    def inner(self, x, name):
        return Bert.inner(self, x, name)

    def feed_forward(self, x, name):
        if f"{name}.ffn_gate_inp.weight" not in self.weights:
            return super().feed_forward(x, name)
        up, down = (self.weights[f"{name}.ffn_{part}_exps.weight"] for part in ("up", "down"))
        out = np.zeros_like(x)
        for row, (h, score) in enumerate(zip(x, softmax(self.linear(x, f"{name}.ffn_gate_inp")))):
            for expert in np.argsort(-score, kind="stable")[:self.key("expert_used_count")]:
                out[row] += score[expert] * (down[expert] @ gelu(up[expert] @ h))
        return out


class ModernBert(Encoder):
    """Norms before each half of a layer, GeGLU; two layers of three slide, by another base."""
    head_activation = staticmethod(gelu)

    def head_row(self, rows):
        return rows.mean(axis=0)

    def window(self, layer):
        return self.key("attention.sliding_window") if layer % 3 != 0 else 0

    def frequencies_of(self, layer):
        base = self.key("rope.freq_base_swa" if layer % 3 != 0 else "rope.freq_base")
        return float(base) ** -(np.arange(0, self.rotated, 2) / self.rotated)

    def rows(self, tokens, cache=None):
        x = self.norm(self.weights["token_embd.weight"][tokens], "token_embd_norm")
        for layer in range(self.layers):
            name = f"blk.{layer}"
            x = x + self.attention(self.norm(x, f"{name}.attn_norm") if layer > 0 else x, layer)
            gate, up = np.split(self.linear(self.norm(x, f"{name}.ffn_norm"), f"{name}.ffn_up"), 2, axis=-1)
            x = x + self.linear(gelu(gate) * up, f"{name}.ffn_down")
        return self.norm(x, "output_norm")


class JinaBertV2(Bert):
    """GeGLU, and scores that fall with the distance, by ALiBi's slopes (arXiv 2310.19923, 2108.12409)."""

    def embedded(self, tokens):
        return self.weights["token_embd.weight"][tokens] + self.weights["token_types.weight"][0]

    def slopes(self):
        def powers(n):
            return 2.0 ** (-8 / n * np.arange(1, n + 1))
        n = 2 ** int(np.log2(self.heads))
        return np.concatenate([powers(n), powers(2 * n)[::2]])[:self.heads]

    def bounded(self, scores):
        position = np.arange(scores.shape[-1])
        return scores - self.slopes()[:, None, None] * np.abs(position[:, None] - position)

    def inner(self, x, name):
        gate, up = np.split(self.linear(x, f"{name}.ffn_up"), 2, axis=-1)
        return gelu(gate) * up


class JinaBertV3(NomicBert):
    """jina-embeddings-v3 (arXiv 2409.10173): BERT's feed-forward, rotated queries and keys."""

    def inner(self, x, name):
        return Bert.inner(self, x, name)


class EuroBert(Model):
    """Llama's layers where each token sees all of the text."""

    def attention(self, x, layer, cache):
        n, name, group = len(x), f"blk.{layer}", self.heads // self.kv_heads
        q, k, v = self.queries_keys_values(x, name)
        q, k = self.rotate(q, 0, layer), np.repeat(self.rotate(k, 0, layer), group, axis=1)
        weights = softmax(np.einsum("nhd,mhd->hnm", q, k) * self.scale)
        mixed = np.einsum("hnm,mhd->nhd", weights, np.repeat(v, group, axis=1))
        return self.linear(mixed.reshape(n, -1), f"{name}.attn_output")


class LlamaEmbed(EuroBert):
    """The same with the pairs of Llama's files."""
    interleaved = True


class NeoBert(EuroBert):
    """Its qkv has a head's query, key and value side by side, then the next head's, as the checkpoint's own code reads them (arXiv 2502.19587)."""
    interleaved = True
    output_norm = "enc.output_norm"

    def queries_keys_values(self, x, name):
        heads = self.linear(x, f"{name}.attn_qkv").reshape(len(x), self.heads, 3 * self.head_dim)
        return np.split(heads, 3, axis=-1)

    def feed_forward(self, x, name, suffix=""):
        gate, up = np.split(self.linear(x, f"{name}.ffn_up"), 2, axis=-1)
        return self.linear(silu(gate) * up, f"{name}.ffn_down")

    def pooled(self, tokens, way):
        if way != "rank":
            return super().pooled(tokens, way)
        return self.linear(np.tanh(self.linear(super().pooled(tokens, "cls"), "cls")), "cls.output")
