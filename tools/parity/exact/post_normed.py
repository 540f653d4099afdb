"""OLMo 2 and 3 (arXiv 2501.00656, 2512.13961) and EXAONE 4 (arXiv 2507.11407): norms behind each half of a layer, none before it.
Muse Glimmer (modeling_muse_glimmer.py): norms before and behind, gated attention, and bounded logits."""
import numpy as np

from model import Model
from yarn import yarn


class PostNormed(Model):
    def window(self, layer):
        return self.key("attention.sliding_window", 0) if layer % 4 != 3 else 0

    def layer(self, x, layer, cache):
        name = f"blk.{layer}"
        x = x + self.norm(self.mix(x, layer, cache), f"{name}.post_attention_norm")
        return x + self.norm(self.feed_forward(x, name), f"{name}.post_ffw_norm")


class Olmo2(PostNormed):
    """Queries and keys are normed over all heads; YaRN is for layers that see everything."""

    def __init__(self, reader, context):
        super().__init__(reader, context)
        self.near = self.frequencies
        if self.key("rope.scaling.type") == "yarn":
            yarn(self)

    def norm_heads(self, x, name):
        return self.norm(x.reshape(len(x), -1), name).reshape(x.shape)

    def frequencies_of(self, layer):
        return self.near if self.window(layer) else self.frequencies

    def magnitude_of(self, layer):
        return 1.0 if self.window(layer) else self.magnitude


class Exaone4(PostNormed):
    """With windows, layers that see everything have no positions."""

    def frequencies_of(self, layer):
        hybrid = self.key("attention.sliding_window", 0) > 0
        return None if hybrid and not self.window(layer) else self.frequencies


class MuseGlimmer(Model):
    """Layers with a window have positions, the others none. The embedding is normed."""

    interleaved = True

    def unweighted(self, x, eps):
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)

    def embed(self, tokens):
        return self.unweighted(super().embed(tokens), self.eps)

    def window(self, layer):
        return self.key("attention.sliding_window") if self.key("attention.sliding_window_pattern")[layer] else 0

    def frequencies_of(self, layer):
        return self.frequencies if self.window(layer) else None

    def queries_keys_values(self, x, name):
        q, k, v = super().queries_keys_values(x, name)
        return np.concatenate([q, self.linear(x, f"{name}.attn_gate").reshape(q.shape)], axis=-1), k, v

    def layer(self, x, layer, cache):
        name = f"blk.{layer}"
        behind = lambda x, norm: self.unweighted(x, 1e-8) * self.weights[f"{name}.{norm}.weight"]
        x = x + behind(self.attention(self.norm(x, f"{name}.attn_norm"), layer, cache), "post_attention_norm")
        return x + behind(self.feed_forward(self.norm(x, f"{name}.ffn_norm"), name), "post_ffw_norm")

    def logits(self, rows):
        scale, cap = self.key("logit_scale"), self.key("final_logit_softcapping")
        return cap * np.tanh(super().logits(rows) * scale / cap)
