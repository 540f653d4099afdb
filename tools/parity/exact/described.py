"""A dense decoder of which only facts are new: `--facts` holds the traits of engine/architectures/traits.ts as JSON. A family whose file
says more than that, such as windows or multipliers, has a class of its own."""
import numpy as np

from encoders import Encoder, gelu
from longrope import longrope
from model import Model, silu, squared_relu
from yarn import yarn

ACTIVATIONS = {"silu": silu, "gelu": gelu, "squared_relu": squared_relu}


class Described(Model):
    def __init__(self, reader, context, facts):
        super().__init__(reader, context)
        self.facts = facts
        self.interleaved = facts.get("interleavedRope", False)
        self.feed_forward_norm = facts.get("feedForwardNorm", "ffn_norm")
        if self.key("rope.scaling.type") == "yarn":
            yarn(self)
        if "rope_factors_long.weight" in self.weights:
            longrope(self)

    def norm(self, x, name):
        return Encoder.norm(self, x, name) if self.facts.get("layerNorms") else super().norm(x, name)

    def norm_heads(self, x, name):
        if self.facts.get("rowNorms"):
            return self.norm(x.reshape(len(x), -1), name).reshape(x.shape)
        return self.norm(x, name)

    def rows(self, tokens, cache):
        self.start = cache.length
        return super().rows(tokens, cache)

    def embed(self, tokens):
        x = super().embed(tokens)
        if not self.facts.get("learnedPositions"):
            return x
        return x + self.weights["position_embd.weight"][self.start:self.start + len(tokens)]

    def frequencies_of(self, layer):
        if self.facts.get("learnedPositions"):
            return None
        every = self.facts.get("positionlessEvery")
        return None if every and (layer + 1) % every == 0 else self.frequencies

    def place(self, q, k, layer, start):
        if not self.facts.get("normsLast"):
            return super().place(q, k, layer, start)
        q, k = self.rotate(q, start, layer), self.rotate(k, start, layer)
        return self.norm_heads(q, f"blk.{layer}.attn_q_norm"), self.norm_heads(k, f"blk.{layer}.attn_k_norm")

    def queries_keys_values(self, x, name):
        if not self.facts.get("fusedHeads"):
            return super().queries_keys_values(x, name)
        heads = self.linear(x, f"{name}.attn_qkv").reshape(len(x), -1, self.head_dim)
        return np.split(heads, [self.heads, self.heads + self.kv_heads], axis=1)

    def feed_forward(self, x, name):
        activation, up = ACTIVATIONS[self.facts.get("activation", "silu")], self.linear(x, f"{name}.ffn_up")
        if self.facts.get("ungated"):
            return self.linear(activation(up), f"{name}.ffn_down")
        gate, up = np.split(up, 2, axis=-1) if self.facts.get("fusedGate") else (self.linear(x, f"{name}.ffn_gate"), up)
        return self.linear(activation(gate) * up, f"{name}.ffn_down")

    def layer(self, x, layer, cache):
        name, norms, parallel = f"blk.{layer}", self.facts.get("norms", "before"), self.facts.get("parallel")

        def before(x, norm):
            return x if norms == "after" else self.norm(x, f"{name}.{norm}")

        def after(y, norm):
            return y if norms == "before" else self.norm(y, f"{name}.{norm}")

        normed = before(x, "attn_norm")
        mixed = x + after(self.mix(normed, layer, cache), "post_attention_norm")
        if parallel != True:  # noqa: E712 (it may be a text)
            normed = before(x if parallel else mixed, self.feed_forward_norm)
        return mixed + after(self.feed_forward(normed, name), "post_ffw_norm")
