"""Decoders whose norms are about the mean: Cohere's Command and Aya (transformers, models/cohere and cohere2), StarCoder2
(arXiv 2402.19173), Nemotron (transformers, models/nemotron)."""
from encoders import Encoder
from gemma import gelu
from model import Model, squared_relu


class LayerNormed(Model):
    norm = Encoder.norm


class CommandR(LayerNormed):
    """Attention and SwiGLU side by side on one norm; heads have a norm each in Command R+."""
    interleaved = True

    def layer(self, x, layer, cache):
        name = f"blk.{layer}"
        normed = self.norm(x, f"{name}.attn_norm")
        return x + self.mix(normed, layer, cache) + self.feed_forward(normed, name)

    def logits(self, rows):
        return super().logits(rows) * float(self.key("logit_scale"))


class Cohere2(CommandR):
    """Every fourth layer sees everything and has no positions."""

    def window(self, layer):
        return self.key("attention.sliding_window") if layer % 4 != 3 else 0

    def frequencies_of(self, layer):
        return self.frequencies if self.window(layer) else None


class StarCoder2(LayerNormed):
    """GELU without a gate."""

    def feed_forward(self, x, name):
        return self.linear(gelu(self.linear(x, f"{name}.ffn_up")), f"{name}.ffn_down")


class Nemotron(LayerNormed):
    """Squared ReLU without a gate; the file's norms have their 1 already."""

    def feed_forward(self, x, name):
        return self.linear(squared_relu(self.linear(x, f"{name}.ffn_up")), f"{name}.ffn_down")
